"""Which variables of an environment hold secrets."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redact import StreamRedactor, make_redactor
from holdfast.redact.known import named_secrets


@pytest.mark.requirement("A4", "C15")
@pytest.mark.parametrize(
    "name",
    ["GITHUB_TOKEN", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "my_api_key", "TOKEN", "AWS_SECRET", "GH_PAT"],
)
def test_a_variable_that_is_named_so_holds_a_secret(name: str) -> None:
    found = named_secrets({name: " hunter2-and-more \n", "PATH": "/usr/bin"})
    assert found == {name: "hunter2-and-more"}


@pytest.mark.requirement("A4", "C15")
def test_a_variable_that_is_called_some_key_holds_one_if_its_value_looks_like_one() -> None:
    assert named_secrets({"DATADOG_KEY": "9f8a7b6c5d4e3f2a1b0c"}) == {"DATADOG_KEY": "9f8a7b6c5d4e3f2a1b0c"}


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OLDPWD", "known-7f3a9c1e"),
        ("PWD", "known-7f3a9c1e"),
        ("STRIPE_PUBLISHABLE_KEY", "known-7f3a9c1e"),
        ("KEYBOARD", "known-7f3a9c1e"),
        ("DB_PASSWORD", "postgres"),
        ("SSH_KEY", "/root/.ssh/id_ed25519"),
        ("SSH_KEY", "~/.ssh/id_ed25519"),
        ("ID_TOKEN", "https://example.com/token"),
        ("API_KEY", "your-api-key-here"),
        ("DB_PASSWORD", ""),
        ("ID_KEY", "20240101"),
        ("SONAR_PROJECT_KEY", "my-project-2"),
        ("S3_KEY", "folder/of/some/file"),
    ],
)
def test_what_is_plainly_no_secret_is_left_alone(name: str, value: str) -> None:
    assert named_secrets({name: value}) == {}


@pytest.mark.parametrize(
    "written", ["correct+horse%2Fbat-9", "correct%20horse%2fbat-9", "correct+horse%2fbat-9"]
)
def test_every_usual_form_of_a_url_is_masked(written: str) -> None:
    assert written not in make_redactor(["correct horse/bat-9"])(f"a=1&b={written}&c=2")


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    "echoed",
    [
        r"Xk4/+aa<bb&cc'9Q".replace("/", r"\/"),
        r"Xk4/+aa\u003cbb\u0026cc'9Q",
        r"Xk4/\u002Baa\u003Cbb\u0026cc\u00279Q",
        "Xk4/+aa&lt;bb&amp;cc&#x27;9Q",
        "Xk4/+aa&lt;bb&amp;cc&#39;9Q",
    ],
    ids=["PHP", "Go", ".NET", "HTML of Python", "HTML of PHP"],
)
def test_a_value_is_masked_as_servers_of_other_languages_echo_it(echoed: str) -> None:
    value = "Xk4/+aa<bb&cc'9Q"
    assert echoed not in make_redactor([value])(f'{{"a": "{echoed}"}}')


TOKEN = "Zx8+kd/Q2m'Vq7\"rT<b=="
WAYS: dict[str, Callable[[str], str]] = {
    "plain": lambda char: char,
    "decimal": lambda char: f"&#{ord(char)};",
    "hex": lambda char: f"&#x{ord(char):X};",
    "name": lambda char: {"+": "&plus;", "/": "&sol;", "'": "&apos;", "<": "&lt;"}.get(char, "&quot;"),
    "HTML in HTML": lambda char: f"&amp;#{ord(char)};",
    "HTML in the JSON of Go": lambda char: f"\\u0026#{ord(char)};",
    "JSON": lambda char: f"\\u{ord(char):04x}",
    "JSON in JSON": lambda char: f"\\\\u{ord(char):04X}",
    "JavaScript": lambda char: f"\\x{ord(char):02X}",
    "a backslash": lambda char: f"\\{char}",
    "URL": lambda char: f"%{ord(char):02x}",
    "URL in URL": lambda char: f"%25{ord(char):02X}",
}


def spelled(value: str, ways: list[str]) -> str:
    """Return the value with its marks written in these ways, one after the other."""
    marks = iter(ways * len(value))
    return "".join(char if char.isalnum() or char == "=" else WAYS[next(marks)](char) for char in value)


@pytest.mark.requirement("S7", "A4")
@given(
    st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=5), st.sampled_from(["", "x ", "\\", "&"])
)
def test_every_mark_of_a_value_may_be_escaped_in_a_way_of_its_own(ways: list[str], before: str) -> None:
    known = make_redactor([TOKEN])
    text = f"{before}{spelled(TOKEN, ways)} end"
    assert known(text).endswith("[redacted:known] end")
    assert "Zx8" not in known(text)
    assert known.known_in(text)


@pytest.mark.requirement("A4")
@given(st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=5), st.integers(1, 30))
def test_a_stream_lets_no_escaped_value_through_a_cut(ways: list[str], size: int) -> None:
    stream = StreamRedactor(make_redactor([TOKEN]))
    text = f"it is {spelled(TOKEN, ways)}, and it is {spelled(TOKEN, ways)} again "
    shown = "".join(
        [*(stream.feed(text[at : at + size]) for at in range(0, len(text), size)), stream.flush()]
    )
    assert shown.count("[redacted:known]") == 2
    assert "Zx8" not in shown
    assert "Vq7" not in shown


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("way", sorted(WAYS))
def test_an_escaped_value_counts_where_a_text_was_cut_off_within_it(way: str) -> None:
    text, known = spelled(TOKEN, [way]), make_redactor([TOKEN])
    for end in range(len(spelled(TOKEN[:8], [way])), len(text)):
        assert known(f"it is {text[:end]}", is_cut=True) == "it is [redacted:known]", text[:end]


@pytest.mark.requirement("S7", "A4")
@pytest.mark.parametrize("broken", ["\n", "\r\n", "\n    ", "\\n", "\\r\\n", "%0A"])
@pytest.mark.parametrize("value", [TOKEN, "plain-known-value", "long" * 40 + "9/+"])
@pytest.mark.parametrize("size", [60, 64, 76])
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_base64_is_masked_wherever_its_lines_end(broken: str, value: str, size: int, every: int) -> None:
    known = make_redactor([value])
    for before in range(0, 64, every):
        whole = base64.b64encode(b"~" * before + value.encode()).decode()
        text = broken.join(whole[at : at + size] for at in range(0, len(whole), size))
        masked = known(f"{text} end")
        first = before * 8 // 6
        assert len(masked.partition("[redacted:known]")[0].replace(broken, "")) == first, (
            "its bits are masked"
        )
        assert masked.partition("[redacted:known]")[2].strip("=") == " end"


@pytest.mark.requirement("A4")
def test_a_search_for_spellings_takes_no_long_time() -> None:
    value = "a\\\\\\\\\\\\\\b+/+/+/=&&&&%%%%c9"
    known = make_redactor([value])
    assert known(value) == "[redacted:known]"
    text = ("a" + "\\" * 200 + "&amp;" * 50 + "%25" * 50 + "c9") * 20
    assert known(text) == text
