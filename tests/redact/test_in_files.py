"""What is secret in the text of a file that holds secrets."""

from __future__ import annotations

import base64

import pytest

from holdfast.redact.in_files import VALUES_MAX, secrets_in

VALUE = "plum-tree" + "-under-7-moons"
DRAWN = "q7Zt2Lm9" + "Xc4Vb8Nw1Rk6Ys3H"

pytestmark = pytest.mark.requirement("A4")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        (".env", f"API_TOKEN={VALUE}\n", "API_TOKEN"),
        (".env", f"export DB_PASS='{VALUE}' # the new one\n", "DB_PASS"),
        (".env", f"# old\n\nSECRET_KEY_BASE={DRAWN}", "SECRET_KEY_BASE"),
        (".env", f"FRUIT={DRAWN}", "FRUIT"),
        (".env", f'DATABASE_URL="postgres://me:{VALUE}@db/one"', "DATABASE_URL"),
        (".env", f"REMOTE=https://{VALUE}@git.example.org/x.git", "REMOTE"),
        (".netrc", f"machine h login me\n  password {VALUE}\n", "password"),
        (".pgpass", f"db:5432:one:me:{VALUE}", "password"),
        (".npmrc", f"//registry.npmjs.org/:_authToken={VALUE}", "registry.npmjs.org_authToken"),
        (".pypirc", f"[pypi]\nusername = __token__\npassword = {VALUE}", "password"),
        (".git-credentials", f"https://me:{VALUE}@git.example.org\n", ""),
        ("credentials", f"[default]\naws_secret_access_key = {DRAWN}", "aws_secret_access_key"),
        ("config", f"users:\n- user:\n    token: {VALUE}\n", "token"),
        ("config.json", f'{{"auths": {{"h": {{"identitytoken": "{VALUE}"}}}}}}', "identitytoken"),
        ("master.key", f"{DRAWN}\n", "key"),
    ],
)
def test_a_value_counts_by_its_name_its_place_or_its_look(name: str, text: str, key: str) -> None:
    value = VALUE if VALUE in text else DRAWN
    assert (value in [found for _, found in secrets_in(name, text)], secrets_in(name, text)[0][0]) == (
        True,
        key,
    )


@pytest.mark.parametrize(
    "line",
    [
        "DEBUG=true",
        "PORT=8080",
        "API_TOKEN=",
        "API_TOKEN=changeme",
        "API_TOKEN=your-token-here",
        "API_TOKEN=${OTHER_TOKEN}",
        "DB_PASSWORD=postgres",
        "DATABASE_URL=postgres://postgres:postgres@localhost/app",
        "TOKEN_EXPIRES=20260101T000000Z",
        "IMAGE=python3.11-slim-bookworm",
        "GIT_COMMIT=9f8a7b6c5d4e3f2a1b0c9f8a7b6c5d4e3f2a1b0c",
        "API_URL=https://api.example.org/v1/things",
        "NEXT_PUBLIC_KEY=9f8a7b6c5d4e3f2a1b0c",
        "HOME_FOLDER=/srv/applications/one2three",
        "#API_TOKEN=" + VALUE,
    ],
)
def test_what_is_no_secret_does_not_become_one(line: str) -> None:
    assert secrets_in(".env", line) == []


@pytest.mark.parametrize("name", ["a.p12", "a.PFX", "a.jks", "a.keystore"])
def test_a_file_of_keys_that_is_no_text_has_no_values(name: str) -> None:
    assert secrets_in("a.pem", VALUE)
    assert secrets_in(name, f"API_TOKEN={VALUE}\n{VALUE}") == []


def test_the_password_in_the_base64_of_docker_counts_too() -> None:
    auth = base64.b64encode(f"me:{VALUE}".encode()).decode()
    found = secrets_in("config.json", f'{{"auths": {{"h": {{"auth": "{auth}"}}}}}}')
    assert [value for _, value in found] == [auth, VALUE]


def test_the_lines_of_a_private_key_are_not_values() -> None:
    lines = "\n".join(f"{number}{DRAWN}{DRAWN}" for number in range(20))
    assert secrets_in("id_rsa", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n") == []


def test_a_file_has_a_bounded_number_of_values() -> None:
    text = "\n".join(f"TOKEN_{number}={VALUE}-{number}" for number in range(VALUES_MAX * 2))
    assert len(secrets_in(".env", text)) == VALUES_MAX


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "\0" * 1000, "=" * 200_000, "A=" + " #" * 100_000, " " * 200_000]
)
def test_a_strange_text_has_no_values_and_is_read_quickly(text: str) -> None:
    assert secrets_in(".env", text) == []
