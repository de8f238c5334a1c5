"""The gates: shut for ordinary text, and open for all that a pattern behind them matches."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.redact import assigned, credentials, make_redactor, shapes
from holdfast.redact.assigned import find_assigned
from holdfast.redact.credentials import _CARD, _PLACES
from holdfast.redact.gates import Gate, widened
from holdfast.redact.shapes import _BEGUN, _INNER_SHAPES, _PEM_BEGIN, _SHAPES
from tests.growth import grows_in_line
from tests.redact.test_redact import PLACES, SECRETS
from tests.seeds import many

SHAPES_GATE = Gate(shapes.gate_patterns())
ASSIGNED_GATE = Gate(assigned.gate_patterns())
PLACES_GATE = Gate(chain(assigned.gate_patterns(), credentials.gate_patterns()))

GATE = Gate(chain(shapes.gate_patterns(), assigned.gate_patterns(), credentials.gate_patterns()))
SHAPED = [*(re.compile(shape.pattern) for shape in (*_SHAPES, *_BEGUN, *_INNER_SHAPES)), _PEM_BEGIN]
PLACED = [*(place.pattern for place in _PLACES), _CARD]
BEHIND = [
    *((SHAPES_GATE, pattern) for pattern in SHAPED),
    *((PLACES_GATE, pattern) for pattern in PLACED),
]


def drawn(pattern: re.Pattern[str]) -> st.SearchStrategy[str]:
    """Texts that the pattern matches, where its look-around agrees."""
    plain = re.sub(r"\(\?<?[=!][^()]*\)|\\b", "", pattern.pattern)
    return st.from_regex(re.compile(plain, pattern.flags), fullmatch=True)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(("gate", "pattern"), BEHIND, ids=[pattern.pattern[:24] for _, pattern in BEHIND])
def test_a_gate_is_open_for_whatever_its_patterns_match(gate: Gate, pattern: re.Pattern[str]) -> None:
    @settings(max_examples=4, suppress_health_check=list(HealthCheck))
    @given(drawn(pattern), st.sampled_from(["", " ", "é ", "\n"]))
    def holds(text: str, before: str) -> None:
        assert not pattern.search(text) or gate.is_open(before + text)

    holds()


@pytest.mark.requirement("A4")
@given(
    st.sampled_from(["password", "DB_PASS", "my_pwd", "api-key", "client_secret", "to\u212aen", "accessKey"]),
    st.sampled_from(["=", ": ", '": "', " := '", " is ", "\t", ' -> r"', "]) ", ' : str = "', "\\': \\'"]),
    st.from_regex(r"[\w\d!%+/.-]{4,14}[\d][\w]{0,3}", fullmatch=True),
)
def test_a_gate_is_open_for_a_value_behind_a_secret_name(name: str, between: str, value: str) -> None:
    text = f"--{name}{between}{value}"
    mark = next((mark for mark in "\"'" if between.endswith(mark)), "")
    assert len(value) < 10 or PLACES_GATE.is_open(text + mark), text


@pytest.mark.requirement("A4")
@settings(max_examples=many(400))
@given(
    st.sampled_from(["password", "x_pass", "PWD", "db_pw", "auth_token", "api_key", "passwords"]),
    st.sampled_from(
        ["=", ":", ": ", " = ", ":=", "\t=\t", ": str = ", ":str=", "!=", "=>", " => ", "->", "' : '", " is "]
    ),
    st.text("abzAZ019 _-.:!?),;=()[]{}\"'é", max_size=16),
)
def test_the_gates_are_open_wherever_a_value_is_found(name: str, between: str, value: str) -> None:
    text = f"the {name}{between}{value}"
    assert not [*find_assigned(text)] or (PLACES_GATE.is_open(text) and ASSIGNED_GATE.is_open(text)), text


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [
        "is_last_pass: bool = False",
        "def sign_in(a_pass: Password) -> None: ...",
        "def login(user: str, token: str) -> None: ...",
        "The password is not stored anywhere.",
        '{"input_tokens": 123456, "max_tokens": 4096, "key": "a"}',
        "2026-03-04T10:11:12.123Z GET https://example.com:8443/a?b=c 200 1700000000000",
        "commit 6e668af0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6",
        "sk-learn, task-force, s.startswith(key)",
    ],
)
def test_the_gates_are_shut_for_ordinary_text(text: str) -> None:
    assert not any(gate.is_open(text) for gate in (SHAPES_GATE, PLACES_GATE, GATE))


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [
        "login(password=password, user=user)",
        "f(password=token)",
        "Client(password=self.config.password, x_pass=settings.DB_PASS)",
        "password=getpass(), passwd=os.environ['PASSWORD']",
        "x_pass=config[key]",
        'login(password="password", pwd=None)',
        "password='{password}', passphrase=\"<yours>\"",
        "password=${PASSWORD} pwd=%s",
        "password=[redacted:password]",
        "Authorization: Bearer [redacted:authorization]",
        "https://me:[redacted:url-credentials]@example.org/",
    ],
)
def test_the_gate_knows_placeholders_and_code_behind_a_secret_name(text: str) -> None:
    assert not GATE.is_open(text)
    assert make_redactor()(text) == text


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "word", ["tok)", "passw", "passworde", "nones", "self-made", "Tokens!", "letmein", "a" * 63]
)
@pytest.mark.parametrize("form", ["password={}", "x_pwd='{}'", 'password: "{}"', "password={}.b(x)"])
def test_a_password_that_begins_like_a_placeholder_opens_the_gate(word: str, form: str) -> None:
    text = form.format(word)
    assert GATE.is_open(text) or not [*find_assigned(text)]


@pytest.mark.requirement("A4")
def test_classes_and_counts_are_widened_and_look_around_is_left_out() -> None:
    assert Gate([widened(r"^(?P<s>\w{30,40})(?!x)$")]).is_open("é" * 50)
    assert Gate([widened(r"^[^\s]$")]).is_open("\ufeff")
    assert Gate([widened(r"^(?i)x-id$")]).is_open("X-ID")
    assert Gate([widened(r"(?i)x-[a-z]d$")]).is_open("x-\u0130d")
    assert not Gate([widened(r"^\d{3}$")]).is_open("12")
    assert Gate([widened(r"(?i)^k:[^\sa]+$")]).is_open("K:b\u212a")
    assert not Gate([widened(r"(?i)^k:[^\sa]+$")]).is_open("K:a b")


@pytest.mark.requirement("A4")
def test_a_gate_lets_its_first_characters_pass_unseen_and_then_looks() -> None:
    gate = Gate(["x"], unseen_chars=10)
    assert [gate.is_open(text) for text in ("abcd", "abcd", "ab", "ab", "xb")] == [
        True,
        True,
        True,
        False,
        True,
    ]
    assert not Gate(["x"], unseen_chars=10).is_open("a" * 11), "a text that is longer than that is looked at"


@pytest.mark.requirement("A4", "L7")
def test_the_engine_is_not_loaded_for_the_few_texts_of_a_short_command() -> None:
    program = (
        "import sys; from holdfast.redact import make_redactor; redact = make_redactor()\n"
        "assert redact('password=hunter2') == 'password=[redacted:password]'\n"
        "for _ in range(20): redact('Find the bug in src/app.py and mend it. ' * 10)\n"
        "print('jsonschema_rs' in sys.modules, bool(redact('ab ' * 20_000)), 'jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


@pytest.mark.requirement("A4")
def test_a_lone_surrogate_opens_every_gate() -> None:
    assert Gate(["nothing"]).is_open("\ud800")
    assert make_redactor()("\ud800 password=hunter2") == "\ud800 password=[redacted:password]"


@pytest.mark.requirement("A4", "L7")
@pytest.mark.parametrize("seed", ["token=", "sk-", "ghp_", "ey", "a", "Ab1_-/", "x-", "//x/", "-u ", "_"])
def test_a_megabyte_of_beginnings_costs_no_more_per_character_than_a_page_of_them(seed: str) -> None:
    redact = make_redactor()
    redact("password=hunter2")

    def work(length: int) -> None:
        text = (seed * length)[:length]
        assert redact(text) == text

    assert grows_in_line(work, 1 << 17)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [*SECRETS.values(), *(place % secret for place, secret in PLACES), "see known-value-" + "7f3a9c1e"],
)
@pytest.mark.parametrize(
    "others", [("", ""), ("bench", "call_12"), ("a=", ":x"), ("é", "\t"), ("\ud800", "")]
)
def test_a_secret_among_other_texts_is_masked_as_it_is_alone(text: str, others: tuple[str, str]) -> None:
    redact = make_redactor(["known-value-" + "7f3a9c1e"])
    among = redact.for_all((others[0], text, others[1]))
    assert among(text) == redact(text) != text


@pytest.mark.requirement("A4")
def test_texts_in_which_nothing_can_be_a_secret_are_looked_at_once() -> None:
    redact = make_redactor()
    assert redact("ab " * 20_000)  # from now on the gates look
    texts = ("call_17", "echo", '{"n": 17}')
    assert redact.for_all(texts) is not redact
    assert [redact.for_all(texts)(text) for text in texts] == [*texts]
