"""Long texts: they are read in pieces and searched once, and what is found is what the whole text shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.redact import Redactor, Span
from holdfast.redact.assigned import find_assigned
from holdfast.redact.credentials import find_credentials
from holdfast.redact.shapes import find_shapes
from tests.redact.test_named import HIDDEN, KEPT
from tests.redact.test_redact import BENIGN, PLACES, SECRETS, mixed

REDACT = Redactor()
REDACT.find(" " * 40_000)  # from now on the first gate looks
CODE = "    name: str\n    def by(self, token: str) -> None:\n        return f'{self.name} of {token}'\n\n"
LINES = [
    *SECRETS.values(),
    *(place % secret for place, secret in PLACES),
    *(text for text, _ in HIDDEN),
    *KEPT,
    *BENIGN,
    "Authorization:\n  Bearer\n  abcdefgh0123456789abc",
    '"passwords": [\n  ' + ",\n  ".join(f'"wonder{n}land{n}"' for n in range(16)) + "\n]",
]


def looked_through(text: str) -> set[tuple[int, int]]:
    """What the finders see in the whole text."""
    found = [*find_shapes(text), *find_assigned(text), *find_credentials(text)]
    return {(span.start, span.end) for span in found}


def covered(spans: set[tuple[int, int]] | list[Span]) -> set[int]:
    return {at for span in spans for at in range(span[0], span[1])}


@pytest.mark.requirement("A4")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(LINES), st.integers(0, 1500), st.sampled_from(["\n", "word ", CODE])),
        max_size=5,
    )
)
def test_what_is_found_in_pieces_is_what_is_found_in_the_whole_text(
    lines: list[tuple[str, int, str]],
) -> None:
    text = "".join((filling * before)[:before] + "\n" + line + "\n" for line, before, filling in lines)
    assert covered(REDACT.find(text)) == covered(looked_through(text))


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "place", ['"api_key":\n  "wonderland"', "Authorization:\n  Bearer\n  abcdefgh0123456789abc"]
)
def test_a_place_of_several_lines_is_found_wherever_a_piece_ends(place: str) -> None:
    secret = place.split()[-1].strip('"')
    for before in range(0, 1_500, 3):
        text = "x\n" * (before // 2) + place + "\n" + "x\n" * 300
        assert secret not in REDACT(text)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "place",
    [
        '{"api_key" : "wonderland"}',
        '"access_token" : ["wonderland", "b"]',
        "Authorization:  Bearer  wonderland",
        'curl -u "me: see wonderland"',
        "db_pw  =  'from wonderland 9'",
        "the passphrase  is  wonderland9",
        "SharedAccessSignature sr=x&sig=" + "wonderland123456789012",
        "sqlplus -s -l me/wonderland@db",
    ],
)
def test_a_place_of_several_words_is_found_wherever_a_part_of_a_long_line_ends(place: str) -> None:
    for before in range(800, 1_300):
        text = "x " * (before // 2) + "x" * (before % 2) + " " + place + " x" * 800
        assert "wonderland" not in REDACT(text), before


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("filling", ["word ", '"a":1,', "a, "])
def test_what_is_found_in_a_long_line_is_what_is_found_in_the_whole_text(filling: str) -> None:
    text = "".join((filling * 300)[: 97 * n % 900] + " " + line + " " for n, line in enumerate(LINES))
    assert covered(REDACT.find(text)) == covered(looked_through(text))


class Counting(Redactor):
    """Counts the characters that it searches again."""

    searched = 0

    def find(self, text: str, *, is_cut: bool = False) -> list[Span]:
        self.searched += len(text)
        return super().find(text, is_cut=is_cut)


@pytest.mark.requirement("A4")
def test_only_the_lines_around_a_mark_are_searched_again() -> None:
    redact = Counting()
    text = CODE * 50 + f"api_key: {mixed(24)}\n" + CODE * 50 + f"see <{SECRETS['github']}>\n" + CODE * 50
    assert redact(text).count("[redacted:") == 2
    assert 0 < redact.searched < 1_000


@pytest.mark.requirement("A4")
def test_what_a_mark_uncovers_is_masked_in_a_long_text_too() -> None:
    first, second = "correct-horse-battery", SECRETS["github"]
    redact = Redactor({"mine": first})
    assert redact(f"{CODE * 50}{first}{second}\n{CODE * 50}").count("[redacted:") == 2
