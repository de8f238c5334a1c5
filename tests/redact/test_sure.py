"""What is masked by its form alone: a shortcut, after which the text is as the finders leave it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.redact import Redactor
from holdfast.redact.assigned import _PLACEHOLDER, is_placeholder
from holdfast.redact.likeness import COUNTED_MIN_CHARS, is_counted
from holdfast.redact.spans import mask
from tests.redact.test_pieces import LINES
from tests.redact.test_redact import SECRETS, mixed

REDACT = Redactor()
REDACT.find(" " * 70_000)  # from now on the gates look
MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")
TOKEN = SECRETS["github"]
WORD = "hunter" + "22x"

pytestmark = pytest.mark.requirement("A4")


def by_finders(text: str) -> str:
    """The text as the finders alone mask it, with marks that tell no kind."""
    for _ in range(8):
        text = mask(text, REDACT.find(text))
    return MARK.sub("[]", text)


FORMS = [
    f"password={WORD}",
    f"DB_PASSWORD = {WORD}",
    f'"password": "{WORD}"',
    f'"password":"{WORD}"',
    f"passwd: {WORD}!A2",
    f"PASSWD='{WORD} of mine'",
    f"passwd := 'odd {WORD}'",
    f'passphrase="see {TOKEN} and on"',
    f"password={TOKEN}!",
    f"password={WORD}[a",
    f"Authorization: Bearer {mixed(24)}",
    f"authorization: {TOKEN}",
    f"curl -u me:{TOKEN}",
    "password=yours123 password=EXAMPLE1 password=1111111 password=axxxx1 password=ab!your1",
    "password=password1, passwords=2password password=1 password=abc",
    f"'password={WORD}'",
    f"https://me:password={WORD}@example.org",
    f"key={TOKEN}, {TOKEN}",
    f'"{TOKEN}" and `{TOKEN}`',
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FORMS, *FORMS, *LINES]),
            st.sampled_from(["\n", " ", ", ", "\\n", "'", '"', '","']),
            st.integers(0, 300),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_sure_is_what_the_finders_mask(lines: list[tuple[str, str, int]]) -> None:
    text = "".join(between + line + between + ("word " * before)[:before] for line, between, before in lines)
    assert MARK.sub("[]", REDACT(text)) == by_finders(text)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_left_as_the_finders_leave_it(form: str) -> None:
    assert MARK.sub("[]", REDACT(form)) == by_finders(form)


@pytest.mark.parametrize(
    "text", [f'passphrase="see {TOKEN} and on"', f'passphrase="{TOKEN} and on"', f"x_pw: 'a {TOKEN} b'"]
)
def test_the_words_around_a_key_in_a_secret_are_masked_with_it(text: str) -> None:
    assert MARK.sub("", REDACT(text)) in ('passphrase=""', "x_pw: ''")


@pytest.mark.parametrize("between", ["\\n", "\\n\\n", "\\t"])
def test_a_secret_in_the_next_line_of_a_text_in_json_is_masked(between: str) -> None:
    first, second = mixed(30), mixed(34)[::-1]
    masked = REDACT(f'"a_secret: {first}{between}b_secret: {second}{between}"')
    assert first not in masked
    assert second not in masked


@given(
    st.from_regex(r"[A-Za-z0-9]{1,14}", fullmatch=True)
    | st.from_regex(r"(your|fake|xxx|ab)\w{0,4}[0-9]", fullmatch=True)
)
@example("1" * 6)
@example("1" * 5)
@example("1EXAMPLE")
@example("1your")
@example("aXxXx1")
def test_a_plain_word_is_a_placeholder_if_the_pattern_says_so(word: str) -> None:
    assert is_placeholder(word) == (_PLACEHOLDER.fullmatch(word) is not None)


@given(
    st.text("abcdefghijklmnopqrstuvwxyzABC0123456789_", max_size=40), st.integers(0, 100), st.integers(2, 20)
)
@example("", 30, 12)
@example("x", 9, 11)
def test_what_counts_up_is_found_wherever_it_begins(before: str, first: int, length: int) -> None:
    run = "".join(chr(ord("0") + (first + n) % 10) for n in range(length))
    assert length < COUNTED_MIN_CHARS or is_counted(before + run + before)
    assert length >= COUNTED_MIN_CHARS or not is_counted("x" + run + "-")
