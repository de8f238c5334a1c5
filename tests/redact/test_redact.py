"""Masking: what is hidden, what is left alone, whatever the text, and at what cost."""

from __future__ import annotations

import base64
import json
import lzma
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redact import Redactor, StreamRedactor, ever_known, make_redactor
from tests.growth import grows_in_line

redact = make_redactor()
DIGITS = "0123456789"
LETTERS = "abcdefghijKLMNOPQRSTuvwxyz"


def mixed(length: int) -> str:
    """A made-up credential's body: letters and digits without a pattern."""
    return "".join((LETTERS + DIGITS)[(i * i * 7 + i * 3 + 5) % 36] for i in range(length))


def hexes(length: int) -> str:
    return "".join("0123456789abcdef"[(i * i * 5 + i * 3 + 2) % 16] for i in range(length))


PEM = "-----" + "BEGIN RSA PRIVATE" + " KEY-----\n"
SECRETS = {
    "openai": "sk-" + mixed(48),
    "openai project": "sk-" + "proj-" + mixed(120),
    "anthropic": "sk-" + "ant-api03-" + mixed(93) + "AA",
    "github": "ghp" + "_" + mixed(36),
    "github fine": "github" + "_pat_" + mixed(82),
    "gitlab": "glpat" + "-" + mixed(20),
    "slack": "xoxb" + "-781236542736-2364535789652-" + mixed(24),
    "stripe": "sk" + "_live_" + mixed(24),
    "google": "AI" + "za" + mixed(35),
    "aws": "AK" + "IA" + "Q7Z3K9M2X5B8N4T6",
    "npm": "npm" + "_" + mixed(36),
    "pypi": "pypi" + "-AgEIcHlwaS5vcmc" + mixed(70),
    "huggingface": "hf" + "_" + (LETTERS * 2)[:34],
    "sendgrid": "SG" + "." + mixed(22) + "." + mixed(43),
    "twilio": "SK" + hexes(32),
    "telegram": "7213808860" + ":AA" + mixed(33),
    "digitalocean": "dop" + "_v1_" + hexes(64),
    "databricks": "dapi" + hexes(32),
    "openrouter": "sk-" + "or-v1-" + hexes(64),
    "groq": "gsk" + "_" + mixed(52),
    "jwt": "ey" + mixed(20) + ".ey" + mixed(40) + "." + mixed(43),
    "private key": PEM + "MIIE" + mixed(60) + "\n" + "-----END RSA PRIVATE KEY-----",
    "cut off private key": PEM + "MIIE" + mixed(60),
    "card": "4111 1111 " + "1111 1111",
    "mailgun": "key" + "-" + hexes(32),
}


@pytest.mark.requirement("A4", "C15")
@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_is_replaced_wherever_it_stands(name: str) -> None:
    secret = SECRETS[name]
    for text in (secret, f"see {secret}", f"x = '{secret}'", json.dumps({"a": secret})):
        masked = redact(text)
        assert secret not in masked
        assert secret[10:26] not in masked
        assert "[redacted:" in masked


PLACES = [
    ("password=%s", "hunter2"),
    ("password: %s", "hunter2"),
    ('"password": "%s"', "hunter2x"),
    ("my password is %s.", "hunter2"),
    ("PGPASSWORD=%s psql", "s3cr3tpw"),
    ("passwd := '%s'", "pa$$w0rd!"),
    ("--password %s --verbose", "hunter2"),
    ("db_pass: '%s'", "Tr0ub4dor&3"),
    ('api_key = "%s"', mixed(24)),
    ("export SERVICE_TOKEN=%s", mixed(32)),
    ("client_secret: %s", mixed(32)),
    ('{"aws_secret_access_key": "%s"}', "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzz9s8d"),
    (r"{\"token\": \"%s\"}", mixed(32)),
    ("Authorization: Bearer %s", mixed(24)),
    ("authorization: basic %s", base64.b64encode(b"me:secret-pass").decode()),
    ("curl -H 'X-Api-Key: %s' https://x", mixed(20)),
    ("curl -u me:%s https://x", "pQ9wTxu4Fg"),
    ("postgres://app:%s@db.internal:5432/app", "s3cr3t-pw"),
    ("https://user:%s@example.com/x", "hunter22"),
]


@pytest.mark.requirement("A4", "C15")
@pytest.mark.parametrize(("place", "secret"), PLACES)
def test_a_value_in_a_secrets_place_is_replaced(place: str, secret: str) -> None:
    masked = redact(place % secret)
    assert secret not in masked
    assert "[redacted:" in masked


BENIGN = [
    "commit 6e668af0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6",
    "sha256:" + hexes(64),
    "id 123e4567-e89b-12d3-a456-426614174000",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4).decode(),
    "password = getpass()",
    "password = os.environ['PASSWORD']",
    "def login(user: str, password: str, token: str) -> None:",
    "token: str = ''",
    "api_key = <your-key>",
    "api_key = 'your-api-key-here-1234'",
    "API_KEY=${API_KEY}",
    "API_KEY=xxxxxxxxxxxxxxxxxxxx",
    "password: ********",
    "password: required, at least 12 characters",
    "The password is not stored anywhere.",
    "max_tokens: 4096, input_tokens=123456, total_tokens: 99999999",
    "token_count = 1234567890123456789",
    "secret_name = 'prod/db/password-2024'",
    "self.token = config.token",
    "Authorization: Bearer <token>",
    "curl -u $USER:$PASSWORD https://x",
    "https://example.com:8443/a@b",
    "git@github.com:org/repo.git",
    "order 1234567890123456 and 4111111111111112",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    "task-force risk-management desk-based",
    "It begins with -----BEGIN PRIVATE KEY----- and this sentence goes on.",
    "keyboard monkey tokenizer secretary passwordless",
]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("text", BENIGN)
def test_text_without_a_secret_is_untouched(text: str) -> None:
    assert redact(text) == text


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "secret", ["plain-known", 'with"quote\\and/slash', "ümläut-known", "two words known"]
)
def test_a_known_secret_is_found_plain_and_encoded(secret: str) -> None:
    known = make_redactor([secret, "short"])
    encoded = [
        secret,
        json.dumps(secret),
        quote(secret),
        quote(secret, safe=""),
        secret.encode().hex(),
        base64.b64encode(secret.encode()).decode(),
        base64.b64encode(f"user:{secret}".encode()).decode(),
        base64.urlsafe_b64encode(f"a{secret}bc".encode()).decode(),
    ]
    for form in encoded:
        assert known.known_in(f"<{form}>"), form
        assert "[redacted:known]" in known(f"<{form}>"), form
    assert not known.known_in("something short")
    assert known("something short") == "something short"


SOUP = st.lists(
    st.one_of(
        st.sampled_from(
            [*SECRETS.values(), *(place for place, _ in PLACES), "password", "token", "=", ": ", '"']
        ),
        st.text(max_size=12),
    ),
    max_size=8,
).map("".join)


@pytest.mark.requirement("A4")
@given(SOUP)
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.requirement("A4")
@given(SOUP, st.lists(st.integers(1, 40), min_size=1, max_size=30), st.text(max_size=5))
def test_a_stream_never_lets_a_known_secret_through_a_cut(before: str, cuts: list[int], after: str) -> None:
    secret = "known secret\nvalue"
    stream = StreamRedactor(make_redactor([secret]))
    text, shown, at = f"{before}{secret}{after} {secret}", "", 0
    while at < len(text):
        step = cuts[at % len(cuts)]
        shown += stream.feed(text[at : at + step])
        at += step
    shown += stream.flush()
    assert secret not in shown


@pytest.mark.requirement("A4", "L2-06")
def test_a_stream_gives_whole_words_early_and_loses_nothing() -> None:
    stream = StreamRedactor(redact)
    pieces = ["Hel", "lo wor", "ld, pass", "word=hun", "ter2 and ", "more"]
    shown = [stream.feed(piece) for piece in pieces]
    assert shown == ["", "Hello ", "world, ", "", "password=[redacted:password] and ", ""]
    assert stream.flush() == "more"


@pytest.mark.requirement("A4")
def test_a_stream_holds_a_private_key_until_its_end() -> None:
    stream = StreamRedactor(redact)
    shown = "".join(
        stream.feed(line) for line in (SECRETS["private key"] + "\nafter that\n").splitlines(True)
    )
    assert shown + stream.flush() == "[redacted:private-key]\nafter that\n"


@pytest.mark.requirement("A4", "A3")
def test_a_stream_without_a_blank_is_held_only_up_to_its_bound() -> None:
    stream = StreamRedactor(make_redactor(["known-secret-value"]))
    text = "x" * 65_530 + "known-secret-value" + "y" * 70_000
    shown = "".join(stream.feed(text[at : at + 1000]) for at in range(0, len(text), 1000))
    assert len(shown) > 60_000
    assert "known-secret" not in shown + stream.flush()


HOSTILE = [
    "token=",
    "password=(",
    "sk-",
    "sk-ant-api03-",
    "4",
    "//x/",
    "x-",
    "ey",
    "-----BEGIN PRIVATE KEY-----",
    " -u a:b1\n",
    "password=letmein,",
    '"password": [',
    "://a:",
]


@pytest.mark.requirement("A4", "L7")
@pytest.mark.parametrize("seed", HOSTILE)
def test_hostile_text_costs_no_more_per_character_when_it_is_long(seed: str) -> None:
    assert grows_in_line(lambda length: redact((seed * (length // len(seed) + 1))[:length]), 20_000)


@pytest.mark.requirement("A4")
def test_the_open_corpus_is_hidden_and_its_benign_texts_stay_whole(shared: Path) -> None:
    with lzma.open(shared / "corpora" / "secrets_corpus.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    keyword = ("KeywordDetector", "generic-api-key")
    rows = [r for r in rows if not r.get("noisy") and not r.get("ambiguous") and r["rule"] not in keyword]
    secret = [row for row in rows if row["label"] == "secret"]
    benign = [row for row in rows if row["label"] == "benign"]
    hidden = sum(not any(r["text"][a:b] in redact(r["text"]) for a, b in r["secrets"]) for r in secret)
    intact = sum(redact(r["text"]) == r["text"] for r in benign)
    assert hidden / len(secret) >= 0.95
    assert intact / len(benign) >= 0.97


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("size", [1, 5, 17])
def test_a_stream_shows_just_what_the_whole_text_would(size: int) -> None:
    texts = [f"see {secret} and on\n" for secret in SECRETS.values()]
    texts += [f"it says {place % secret} and on\n" for place, secret in PLACES]
    texts += [f"it says {place % secret} and on\n" for place, secret in QUOTED_WORDS]
    for text in (*texts, *BENIGN):
        stream = StreamRedactor(redact)
        shown = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert shown + stream.flush() == redact(text)


QUOTED_WORDS = [
    ('password = "%s"', "correct horse 9 battery"),
    ("db_pass: '%s'", "two w0rds"),
    ('{"password": "%s"}', "two w0rds"),
    ('curl -u "me:%s" https://x', "pQ9w Txu4"),
]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    ("before", "line"), [(PEM, mixed(64) + "\n"), ("API_TOKEN=", mixed(60)), ("sk-" + "proj-", mixed(60))]
)
def test_the_rest_of_a_secret_longer_than_what_is_held_is_hidden_too(before: str, line: str) -> None:
    stream = StreamRedactor(redact)
    pieces = [before, *[line] * 2_500, " and on"]
    shown = "".join(map(stream.feed, pieces)) + stream.flush()
    assert line[:20] not in shown
    assert len(shown) < 2_000
    assert shown.endswith(" and on")


@pytest.mark.requirement("A4", "H5")
@pytest.mark.parametrize("at", range(0, 200, 7))
def test_what_was_passed_over_still_tells_what_follows(at: int) -> None:
    text = "Here it is: " + SECRETS["private key"] + "\nand that was all of it"
    stream = StreamRedactor(redact)
    for character in text[:at]:
        stream.skip(character)
    shown = "".join(map(stream.feed, text[at:])) + stream.flush()
    assert shown in redact(text) or shown.removeprefix(" ") in redact(text)
    assert not any(shown[i : i + 6] in SECRETS["private key"][40:90] for i in range(len(shown) - 6))


@pytest.mark.requirement("A4", "A3")
def test_what_is_passed_over_is_kept_only_up_to_a_bound() -> None:
    stream = StreamRedactor(redact)
    tracemalloc.start()
    for _ in range(20_000):
        stream.skip("some words that nobody hears ")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 300_000
    assert stream.feed("password=hun") + stream.feed("ter2 ") == "password=[redacted:password] "


@pytest.mark.requirement("A4")
def test_what_looked_like_a_secret_in_one_text_is_masked_in_what_comes_of_it() -> None:
    also = redact.also(['p4w"7', "admin", "x"])
    masked = "out: [redacted:secret], json: [redacted:secret], x, admin"
    assert also('out: p4w"7, json: p4w\\"7, x, admin') == masked
    assert redact('out: p4w"7') == 'out: p4w"7'


@pytest.mark.requirement("A4", "L7")
@pytest.mark.parametrize("before", [65_520, 65_530, 65_536, 131_060, 200_000])
def test_a_long_piece_that_ends_within_a_secret_shows_nothing_of_it(before: int) -> None:
    token = "ghp_" + "0123456789abcdefghij" + "klmnopqrstuvwxyzAB"
    text = "word " * (before // 5) + token + " end"
    for size in (1 << 14, 1 << 16, 1 << 17):
        stream = StreamRedactor(make_redactor())
        told = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*told, stream.flush()]) == text.replace(token, "[redacted:github]")


def test_the_beginning_of_a_known_secret_counts_only_where_a_text_was_cut_off() -> None:
    known = make_redactor(["correct-horse-battery"])
    assert known("it is correct-horse", is_cut=True) == "it is [redacted:known]"
    assert known("it is correct-horse") == "it is correct-horse"
    assert known("it is correct", is_cut=True) == "it is correct"


def test_a_secret_right_after_another_is_masked_too() -> None:
    known = make_redactor(["correct-horse-battery"])
    assert known("correct-horse-battery" + "ghp_" + mixed(36)) == "[redacted:known][redacted:github]"


def test_a_process_remembers_what_any_redactor_has_known_and_bounds_what_was_only_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.redact.redactor.EVER_LEARNT_MAX", 50)
    Redactor({"A": "tin-drum-7-moons"})
    files = Redactor()
    for number in range(40):
        files.learn([f"value-{number:04}-of-a-file"], "there")
    shown = ever_known()("tin-drum-7-moons value-0039-of-a-file value-0000-of-a-file")
    assert shown == "[redacted:known] [redacted:known] value-0000-of-a-file"
