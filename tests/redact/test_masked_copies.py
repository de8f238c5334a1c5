"""The stored copy of a call's arguments: valid JSON, without the secrets, and with a word about what they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redact import make_redactor
from holdfast.runtime.masking import Masked, masked_copy
from tests.redact.test_redact import PLACES, SECRETS

KNOWN = "known-" + "value-7f3a9c1e"
redact = make_redactor([KNOWN])


@pytest.mark.requirement("A4", "C3")
@pytest.mark.parametrize("secret", [*SECRETS.values(), KNOWN], ids=[*SECRETS, "known"])
def test_a_secret_in_an_argument_is_masked_and_told(secret: str) -> None:
    arguments = {"path": "a.py", "content": f'x = 1\ny = "{secret}"\n', "deep": [{"n": 3, "s": secret}]}
    for text in (json.dumps(arguments), json.dumps(arguments, indent=1, ensure_ascii=False)):
        copy = masked_copy(text, redact)
        assert secret not in str(json.loads(copy.text))
        assert secret[10:20] not in copy.text
        assert sum(secret[10:20] in value for value in copy.values) == 2
        assert json.loads(copy.text)["path"] == "a.py"
        assert json.loads(copy.text)["deep"][0]["n"] == 3


@pytest.mark.requirement("A4", "C3")
@pytest.mark.parametrize(("place", "secret"), PLACES)
def test_a_value_in_a_secrets_place_is_masked_in_an_argument(place: str, secret: str) -> None:
    copy = masked_copy(json.dumps({"command": f"x; {place % secret} ;y"}), redact)
    assert secret not in json.loads(copy.text)["command"]
    assert any(secret in value for value in copy.values)


@pytest.mark.requirement("A4", "C3")
@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        ({"password": "hunter2x"}, {"password": "[redacted:password]"}),
        ({"db": {"pass_word": "a", "password": "two w0rds"}}, None),
        ({"card": 4111111111111111}, {"card": "[redacted:card]"}),
        ({"password": 12345678}, {"password": "[redacted:password]"}),
        ({KNOWN: 1}, {"[redacted:known]": 1}),
    ],
)
def test_what_a_name_makes_secret_is_masked_whole(arguments: Any, masked: Any) -> None:
    copy = masked_copy(json.dumps(arguments), redact)
    assert copy.values
    assert masked is None or json.loads(copy.text) == masked


@pytest.mark.requirement("A4", "C3")
def test_an_escape_hides_nothing() -> None:
    text = '{"content": "\\u0070assword = \\"hunter2x\\""}'
    copy = masked_copy(text, redact)
    assert json.loads(copy.text) == {"content": 'password = "[redacted:password]"'}
    assert copy.values == ("hunter2x",)
    spread = "".join(f"\\u{ord(character):04x}" for character in KNOWN)
    assert masked_copy(f'{{"a":"{spread}"}}', redact).values == (KNOWN,)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [
        '{"path":"a.py", "content":"x = 1\\n"}',
        "{}",
        "",
        "not json",
        '{"a":1e400}',
        '{"n":12345678901234567890}',
        '{"content":"password = None\\nurl = 1"}',
    ],
)
def test_arguments_without_a_secret_stay_as_they_were_written(text: str) -> None:
    assert masked_copy(text, redact) == Masked(text, ())


@pytest.mark.requirement("A4")
def test_malformed_arguments_are_masked_as_text() -> None:
    copy = masked_copy(f'{{"content": "{KNOWN}', redact)
    assert copy.text == '{"content": "[redacted:known]'
    assert copy.values == (KNOWN,)


@pytest.mark.requirement("A4", "C3")
def test_what_is_found_in_one_place_is_masked_in_all() -> None:
    text = json.dumps({"command": "echo hunter2x; password='hunter2x' ./go", "note": "hunter2x it is"})
    assert "hunter2x" not in masked_copy(text, redact).text


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.sampled_from([*SECRETS.values(), KNOWN, *(place % secret for place, secret in PLACES)]),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["password", "token", "api_key"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.requirement("A4", "C3")
@given(VALUES, st.booleans())
def test_the_copy_is_json_and_holds_no_secret_whatever_the_arguments(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    copy = masked_copy(text, redact)
    json.loads(copy.text)
    assert "\\" in copy.text or redact(copy.text) == copy.text
    assert KNOWN not in copy.text
    assert copy.values or copy.text == text
