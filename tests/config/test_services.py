"""`[circuits]`, `[rates]` and several keys of a provider, as the program uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.access.provider_keys import ProviderKeys
from holdfast.config.load import load, load_only
from holdfast.config.paths import Home
from holdfast.config.services import rate_finder
from holdfast.errors import ConfigError
from holdfast.protocol.circuits import CircuitRules
from holdfast.protocol.rates import Rate
from holdfast.providers.registry import PROVIDERS

ONE, TWO = "a-key-" + "0001", "a-key-" + "0002"


def test_without_settings_there_are_the_usual_circuits_and_no_rates() -> None:
    config = load_only({})
    assert (config.circuits, config.rates) == (CircuitRules(3, 30_000), {})
    assert rate_finder(config.rates) is None


def test_a_name_has_each_value_of_the_most_specific_glob_that_sets_it() -> None:
    rates: dict[str, Any] = {
        "*": {"concurrent": 9},
        "openai:*": {"requests_per_minute": 60, "concurrent": 8},
        "openai:gpt-5*": {"requests_per_minute": 30, "burst": "1s"},
        "user:*": {"burst": "2s"},
    }
    config = load_only({"circuits": {"failures": 5, "cooldown": "90s"}, "rates": rates})
    assert config.circuits == CircuitRules(5, 90_000)
    find = rate_finder(config.rates)
    assert find is not None
    assert find("openai:gpt-5.5") == Rate(30, None, 8, 1_000)
    assert find("openai:other") == Rate(60, None, 8, 10_000)
    assert find("user:ann") == Rate(concurrent=9, burst_ms=2_000)
    only = rate_finder({"user:*": {"burst": 2.0}})
    assert only is not None
    assert only("user:ann") is None, "a burst alone limits nothing"
    assert only("home") is None


def test_a_project_may_only_make_rates_slower(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    workspace.mkdir()
    (home / "config.toml").write_text("[rates.home]\nrequests_per_minute = 60\n")
    file = workspace / "holdfast.toml"
    for said, counts in ((30, 30), (90, 60)):
        file.write_text(
            f"[rates.home]\nrequests_per_minute = {said}\nconcurrent = 2\n[circuits]\nfailures = 1\n"
        )
        config = load(
            Home(home, home / "config.toml"), workspace, {}, {}, machine_file=tmp_path / "no-such-file"
        )
        assert config.rates == {"home": {"requests_per_minute": counts, "concurrent": 2}}
        assert config.circuits.failures == 3


def test_all_that_is_wrong_is_reported_at_once_with_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[circuits]\nfailures = 0\ncooldown = "-1s"\n[rates."openai:*"]\nconcurrent = 0\nburst = 0\n[rates.x]\n'
        'tokens_per_minute = 9\n[providers.openai]\napi_key_env = ["A", ""]\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_only(file)
    assert caught.value.exit_code == 2
    lines = caught.value.message.splitlines()
    told = [line.strip().removeprefix(f"{file}:") for line in lines if str(file) in line]
    assert [each.partition(":")[0] for each in told] == ["2", "3", "5", "6", "10", "8"]
    assert "providers.openai.api_key_env" in told[4]


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ({}, (ONE,)),
        ({"api_key_env": "TWO"}, (TWO,)),
        ({"api_key_env": ["TWO", "UNSET", "ONE", "SAME"]}, (TWO, ONE)),
        ({"api_key_env": ["UNSET"]}, ("",)),
    ],
)
def test_the_keys_of_a_provider_are_those_of_all_variables_that_are_named(
    said: dict[str, Any], keys: tuple[str, ...], tmp_path: Path
) -> None:
    environ = {"OPENAI_API_KEY": ONE, "ONE": ONE, "TWO": TWO, "SAME": TWO}
    config = load_only({"providers": {"openai": said}})
    found = ProviderKeys(config, environ)
    assert environ.get(found.variable(PROVIDERS["openai"]), "") == keys[0], "this one is shown"
    assert found.api_keys(PROVIDERS["openai"], None) == keys  # type: ignore[arg-type]
