"""Secrets that the name of their field or their place in a connection string shows, whatever they look like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.redact.redactor import Redactor
from holdfast.redact.stream import StreamRedactor
from tests.redact.test_redact import SECRETS

REDACT = Redactor()
WORD = "wonder" + "land"
ODD = "p@ss/w" + "ord?1"
SIGNATURE = "abcDEF123456%2Babc" + "def0987%3D"

HIDDEN = [
    (f'{{"api_key": "{WORD}"}}', WORD),
    (f"{{'client-secret': '{WORD}'}}", WORD),
    (f'{{"refreshToken" : "{WORD}"}}', WORD),
    (f'{{"secretAccessKey":\n    "{WORD}"}}', WORD),
    (f'{{\\"auth_token\\": \\"{WORD}\\"}}', WORD),
    (f'{{"passwords": ["one", "{WORD}"]}}', WORD),
    (f"postgres://me:{ODD}@db.example.org/x", ODD),
    (f"mongodb+srv://me:{WORD}@cluster.example.net", WORD),
    (f"me:{ODD}@tcp(127.0.0.1:3306)/db", ODD),
    (f"Driver={{SQL}};Server=x;UID=sa;PWD={{{ODD};x}};", ODD),
    (f"https://x.blob.example.net/c?sv=2020&sp=r&sig={SIGNATURE}", SIGNATURE),
    (f"jdbc:oracle:thin:scott/{WORD}@//h:1521/x", WORD),
    (f"X-JFrog-Art-Api: {WORD}", WORD),
    (f"https://me:{WORD}@now@example.org/", WORD),
]
KEPT = [
    '{"api_key": "YOUR_API_KEY"}',
    '{"private_key": "/etc/ssl/site.crt"}',
    '{"password": "string", "access_token": "required"}',
    '{"token": "hello", "tokens": ["the", "end"]}',
    '{"passwords": []}',
    "redis://localhost:6379/0",
    "https://host:8080/picture@2x.png",
    'f"Server=a;PWD={password};"',
    "postgres://$USER:${PASSWORD}@localhost/x",
]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(("text", "secret"), HIDDEN, ids=[text[:24] for text, _ in HIDDEN])
def test_a_secret_is_hidden_by_the_name_of_its_field_or_its_place(text: str, secret: str) -> None:
    assert secret not in REDACT(text)
    assert REDACT(text).startswith(text[:3])


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("text", KEPT)
def test_a_placeholder_a_path_and_a_plain_address_stay(text: str) -> None:
    assert REDACT(text) == text


HORSE = "correct " + "horse"


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "form",
    [
        '{"password": "%s"}',
        '{"user": "ann", "passwd":"%s battery staple"}',
        "{'password': '%s'}",
        r'{"arguments": "{\"password\": \"%s\"}"}',
        "password: '%s'",
        '  passphrase: "%s"',
        'DB_PASSWORD="%s"',
        "export PGPASSWORD='%s'",
        'password = "%s"',
        "tool --password '%s' -v",
        'the password is "%s".',
        "`password`: `%s`",
    ],
)
def test_several_words_behind_the_exact_name_of_a_password_are_hidden(form: str) -> None:
    text = form % HORSE
    masked = REDACT(text)
    assert "horse" not in masked
    assert masked.startswith(text[: text.index("correct")])
    assert by_words(text) == masked


def by_words(text: str) -> str:
    """What a stream shows that gets a few characters at a time."""
    stream = StreamRedactor(REDACT)
    return "".join([stream.feed(text[at : at + 3]) for at in range(0, len(text), 3)]) + stream.flush()


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [
        '{"password": "Enter your password", "login": "Log in"}',
        '{"password": "Password", "username": "User name"}',
        '{"password": "Mot de passe"}',
        '{"password": "mot de passe"}',
        '{"password": "Forgot it?"}',
        '{"password": "Please type it once more, or cancel."}',
        '{"password": "enter your password"}',
        '{"password": "is too short"}',
        '{"password": "cannot be blank"}',
        '{"password": "the password of the user"}',
        "{'password': 'wrong user or password'}",
        '{"passwordHint": "something easy to keep in mind"}',
        '{"forgot_password": "get another one mailed"}',
        '{"confirmPassword": "once again please"}',
        '{"login.password": "keep yours safely"}',
        "password: 'Your password'",
        'password = "not given"',
        "password: correct horse",
        'parser.add_argument("--password", help="whatever opens that door")',
        '<input name="password" placeholder="something long">',
    ],
)
def test_labels_hints_and_errors_behind_such_a_name_stay(text: str) -> None:
    assert REDACT(text) == text


@pytest.mark.requirement("A4")
@given(
    st.lists(
        st.sampled_from([*(text for text, _ in HIDDEN), *KEPT, *SECRETS.values()]), min_size=1, max_size=3
    ),
    st.integers(0, 9_000),
    st.sampled_from(["\n", " ", "x = 1\n"]),
)
@settings(max_examples=40, deadline=None)
def test_a_secret_is_hidden_wherever_it_is_in_a_long_text(
    texts: list[str], before: int, filling: str
) -> None:
    text = (filling * before)[:before] + "\n" + "\n".join(texts) + "\n" + filling * 3_000
    masked = REDACT(text)
    for each in texts:
        # A key without an end hides what follows it, too.
        assert REDACT(each).split("\n")[-1] in masked or "[redacted:private-key]" in masked
