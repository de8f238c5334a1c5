"""Keys by their beginning: hidden whatever their length, unless they are plainly made up."""

from __future__ import annotations

import random
import string

import pytest

from holdfast.redact import make_redactor

redact = make_redactor()

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"

BEGINNINGS = {
    "sk-" + "proj-": WORD,
    "sk-" + "svcacct-": WORD,
    "sk-" + "admin-": WORD,
    "sk-": ALNUM,
    "sk-" + "ant-api03-": WORD,
    "sk-" + "ant-oat01-": WORD,
    "sk-" + "or-v1-": HEX,
    "gsk" + "_": ALNUM,
    "pplx" + "-": ALNUM,
    "xai" + "-": ALNUM,
    "r8" + "_": ALNUM,
    "hf" + "_": ALNUM,
    "ghp" + "_": ALNUM,
    "gho" + "_": ALNUM,
    "github" + "_pat_": ALNUM + "_",
    "glpat" + "-": WORD,
    "glptt" + "-": WORD,
    "glagent" + "-": WORD,
    "sk" + "_live_": ALNUM,
    "whsec" + "_": ALNUM,
    "shpat" + "_": HEX,
    "AI" + "za": WORD,
    "GOCSPX" + "-": WORD,
    "ya29" + ".": WORD,
    "AK" + "IA": string.ascii_uppercase + string.digits,
    "ABSK" + "Qm": ALNUM,
    "dop" + "_v1_": HEX,
    "dapi": HEX,
    "npm" + "_": ALNUM,
    "pypi" + "-AgEIcHlwaS5vcmc": WORD,
    "rubygems" + "_": HEX,
    "ATATT3": WORD,
    "ops" + "_eyJ": ALNUM,
    "AGE-SECRET" + "-KEY-1": string.ascii_uppercase + string.digits,
    "hvs" + ".": WORD,
    "glsa" + "_": ALNUM,
    "glc" + "_": ALNUM,
    "lin" + "_api_": ALNUM,
    "ntn" + "_": ALNUM,
    "PMAK" + "-": HEX,
    "NRAK" + "-": string.ascii_uppercase + string.digits,
    "sntrys" + "_": ALNUM,
    "sgp" + "_": HEX,
    "dp" + ".pt.": ALNUM,
    "dt0c01" + ".": ALNUM,
    "nvapi" + "-": WORD,
    "tvly" + "-": ALNUM,
    "csk" + "-": ALNUM,
    "lsv2" + "_pt_": HEX,
    "dckr" + "_pat_": WORD,
    "sbp" + "_": HEX,
    "figd" + "_": WORD,
    "tskey" + "-auth-": ALNUM,
    "xkeysib" + "-": HEX,
}


@pytest.mark.requirement("A4", "C15")
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_key_is_known_by_its_beginning_whatever_its_length(beginning: str) -> None:
    drawn = random.Random(beginning)
    shown = []
    longest = 40 if beginning.startswith("AI") else 120
    for length in range(24, longest + 1):
        body = "".join(drawn.choice(BEGINNINGS[beginning]) for _ in range(length - 1)).strip("-_") + "7"
        text = f"export KEY_A='{beginning}{body}'; echo done"
        if body[:16] in redact(text) or not redact(text).endswith("'; echo done"):
            shown.append(length)
    assert len(shown) <= 1, shown


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "text",
    [
        "sk-" + "proj-your-key-goes-here-please",
        "sk-" + "ant-api03-xxxxxxxxxxxxxxxxxxxxxxxx",
        "sk-" + "ant-api03-abcdefghijklmnopqrstuvwxyz",
        "sk-" + "proj-EXAMPLEKEYEXAMPLE12345",
        "ghp" + "_1234567890123456789012",
        "ghp" + "_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "npm" + "_configRegistryUrlValueOfAll",
        "hf" + "_transferDownloadEverythingNow",
        "glptt" + "-the-name-of-a-token-is-no-token",
        "ops" + "_eyJzaWduSW5BZGRyZXNzIjoiaHR0...",
        "pypi" + "-attestation-models-and-more",
        "a task-" + "proj-board-with-a-long-name-2024",
        "tskey" + "-auth-is-how-they-begin",
    ],
)
def test_a_beginning_with_words_or_a_specimen_behind_it_is_no_key(text: str) -> None:
    assert redact(text) == text


@pytest.mark.requirement("A4")
def test_a_token_that_only_counts_up_is_made_up() -> None:
    assert redact("API_TOKEN=123456789012345678a9bc") == "API_TOKEN=123456789012345678a9bc"
    assert "[redacted:secret]" in redact("API_TOKEN=9012345671a9bc48f1e3")
