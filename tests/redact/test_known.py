"""Which variables of an environment hold secrets."""

from __future__ import annotations

import pytest

from holdfast.redact import forms_of, make_redactor
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
    assert echoed in forms_of(value)
    assert echoed not in make_redactor([value])(f'{{"a": "{echoed}"}}')
