"""What a user says about models and how they are spoken to."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.access.provider_keys import ProviderKeys
from holdfast.config.load import load
from holdfast.config.models import ProviderSettings, left_out
from holdfast.config.paths import find_home
from holdfast.config.settings import Config
from holdfast.errors import ConfigError, UsageError
from holdfast.protocol.limits import NO_OPTIONS, ModelFacts, ModelOptions
from holdfast.providers.registry import PROVIDERS


def loaded(home: Path, text: str = "", flags: dict[str, object] | None = None, **environ: str) -> Config:
    (home / "config.toml").write_text(text)
    environ.setdefault("HOLDFAST_ADMIN_CONFIG", str(home / "no-admin.toml"))
    return load(find_home(str(home), environ), None, flags or {}, environ)


OPTIONS = """
effort = "low"
[model_options."openai:*"]
effort = "medium"
temperature = 0.5
[model_options."openai:gpt-5.5"]
effort = "high"
"""


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("openai:gpt-5.5", ModelOptions("high", 0.5)),
        ("openai:gpt-5.4", ModelOptions("medium", 0.5)),
        ("anthropic:claude-opus-4-5", ModelOptions("low")),
    ],
)
def test_each_option_is_that_of_the_most_specific_name_that_sets_it(
    tmp_path: Path, model: str, options: ModelOptions
) -> None:
    assert loaded(tmp_path, OPTIONS).options(model) == options
    for config in (
        loaded(tmp_path, OPTIONS, {"effort": "low"}),
        loaded(tmp_path, OPTIONS, HOLDFAST_EFFORT="low"),
    ):
        assert config.options(model) == ModelOptions("low", options.temperature)
    assert loaded(tmp_path).options(model) == NO_OPTIONS


def test_a_provider_has_its_headers_and_how_it_is_reached(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        '[providers.openai]\ncache = "blocks"\ncache_ttl = "1h"\nproxy = "http://u:p@127.0.0.1:3128"\n'
        'ca_file = "/etc/ours.pem"\n[providers.openai.headers]\nX-Team = "a b"\n"X.Y" = "c"\n',
    )
    assert config.providers["openai"] == ProviderSettings(
        cache="blocks",
        cache_ttl="1h",
        headers={"X-Team": "a b", "X.Y": "c"},
        proxy="http://u:p@127.0.0.1:3128",
        ca_file="/etc/ours.pem",
    )
    assert config.keeps_an_hour("openai")
    assert not config.keeps_an_hour("anthropic")


def test_all_bad_values_are_told_at_once(tmp_path: Path) -> None:
    bad = """
    effort = "much"
    [model_options."openai:*"]
    temperature = 3
    [providers.openai]
    cache = "yes"
    cache_ttl = "10m"
    proxy = "socks5://x"
    ca_file = "ours.pem"
    headers.X-Team = "a\\nb"
    """
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, bad)
    for key in ("effort", "temperature", "cache", "cache_ttl", "proxy", "ca_file", "X-Team"):
        assert f"{key} =" in caught.value.message or f'{key}" =' in caught.value.message, caught.value.message


def test_an_option_that_is_left_out_is_told_with_its_model() -> None:
    facts = ModelFacts("openai", "gpt-4o", options=ModelOptions(temperature=0.5))
    assert left_out(facts, ModelOptions("high", 0.5)) == (
        "openai:gpt-4o does not take effort = high, so it is left out.",
    )
    assert left_out(facts, facts.options) == ()


@pytest.mark.parametrize(("content", "why"), [(None, "does not exist"), ("no PEM", "has no certificates")])
def test_a_file_without_certificates_is_told_before_anything_is_sent(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "ours.pem"
    if content is not None:
        file.write_text(content)
    config = loaded(tmp_path, f'[providers.openai]\nca_file = "{file}"')
    with pytest.raises(UsageError) as caught:
        ProviderKeys(config, {}).link(PROVIDERS["openai"])
    assert why in caught.value.message
    assert str(file) in caught.value.message
