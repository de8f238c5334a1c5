"""The composition root: what a run's settings come to, what is refused, and that all is closed again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from holdfast.access.known import known_secrets
from holdfast.access.provider_keys import ProviderKeys
from holdfast.app import App, open_app, own_places
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import StorageError, UsageError
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.ports import ModelAttempt
from holdfast.providers.registry import entry_of
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock

KEY = "not-a-real-key-0123456789"


def opened(config: dict[str, Any], home: Home | None = None, **environ: str) -> Any:
    return open_app(load_only(config), home, environ=environ, clock=JumpingClock())


@pytest.mark.requirement("S1")
async def test_a_home_is_durable_and_no_home_is_in_memory(tmp_path: Path) -> None:
    async with opened({}) as app:
        assert isinstance(app.store, VolatileStore)
    async with opened({}, Home(tmp_path / "h", tmp_path / "h" / "config.toml")) as app:
        assert isinstance(app.store, SqliteStore)
        assert await app.store.sessions() == []
    with pytest.raises(StorageError, match="closed"):
        await app.store.sessions()


@pytest.mark.requirement("S1")
async def test_a_provider_is_made_once_and_a_script_once_for_each_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "hi"}\n')
    async with opened({}, OPENAI_API_KEY=KEY) as app:
        assert await app.resolve("openai:gpt-5.5") is await app.resolve("openai:other")
        first = await app.resolve(f"script:{tmp_path}/a.jsonl")
        assert first is await app.resolve(f"script:{tmp_path}/a.jsonl")
        assert first is not await app.resolve(f"script:{tmp_path}/b.jsonl")


@pytest.mark.requirement("L9")
async def test_a_missing_key_is_told_by_the_variable_that_was_named() -> None:
    async with opened({"providers": {"groq": {"api_key_env": "MINE"}}}, GROQ_API_KEY=KEY) as app:
        with pytest.raises(UsageError) as caught:
            await app.resolve("groq:x")
    assert "Set MINE" in caught.value.hint


@pytest.mark.requirement("L9")
async def test_what_cannot_be_resolved_is_a_usage_error() -> None:
    async with opened({}) as app:
        for name, said in (("opnai:x", "Did you mean openai"), ("openai:gpt-5.5", "no API key")):
            with pytest.raises(UsageError, match=said):
                await app.resolve(name)


async def test_the_configured_address_and_key_variable_come_first() -> None:
    config = {"providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "MINE"}}}
    async with opened(config, OPENAI_BASE_URL="https://example.org/v1", MINE=KEY) as app:
        assert ProviderKeys(app.config, app.environ).base_url(entry_of("openai")) == "http://127.0.0.1:9/v1"
        assert app.redact(f"the key is {KEY}") == "the key is [redacted:known]"


@pytest.mark.requirement("L2-07")
async def test_a_server_on_this_machine_is_not_free_until_the_user_says_so() -> None:
    """It may be a proxy that leads to a provider that costs money."""
    async with opened({}, OPENAI_BASE_URL="http://localhost:9/v1") as app:
        assert app.facts("openai:no-such-model").price == "unknown"
    free = {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 0.0}
    async with opened({"catalog": {"openai:*": free}}, OPENAI_BASE_URL="http://localhost:9/v1") as app:
        assert app.facts("openai:no-such-model").price == "free"


@pytest.mark.requirement("C12")
def test_no_tool_touches_any_home_of_the_user_or_the_settings_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    usual, usual_file = str(tmp_path / "data/holdfast"), str(tmp_path / "config/holdfast/config.toml")
    admin = ("/etc/holdfast/config.toml", "/x/admin.toml")
    environ = {"HOLDFAST_ADMIN_CONFIG": "/x/admin.toml"}
    here = own_places(Home(tmp_path / "h", tmp_path / "h" / "config.toml"), environ)
    assert here == {
        "keys": (),
        "homes": (str(tmp_path / "h"), usual),
        "settings": (str(tmp_path / "h" / "config.toml"), usual_file, *admin),
    }
    in_memory = own_places(None, environ | {"HOLDFAST_SECRETS_KEY_FILE": str(tmp_path / "x" / ".." / "key")})
    assert in_memory == {
        "keys": (str(tmp_path / "key"),),
        "homes": (usual,),
        "settings": (usual_file, *admin),
    }


def test_the_values_of_all_key_variables_are_known_secrets() -> None:
    config = load_only({"providers": {"openai": {"api_key_env": "MINE"}}})
    environ = {"MINE": KEY, "OPENAI_API_KEY": "another-1234", "GROQ_API_KEY": "", "PATH": "bin"}
    assert known_secrets(config, environ) == {"MINE": KEY, "OPENAI_API_KEY": "another-1234"}


def test_the_key_of_the_stored_secrets_is_known_also_from_a_file(tmp_path: Path) -> None:
    key, name = "5e" * 32, "HOLDFAST_SECRETS_KEY_FILE"
    (tmp_path / "key").write_text(f"{key}\n")
    (tmp_path / "other").write_text("some text")
    config = load_only({})
    for file, known in (("key", {name: key}), ("other", {}), ("none", {}), ("a\0b", {})):
        assert known_secrets(config, {name: str(tmp_path / file)}) == known


@pytest.mark.requirement("L9")
async def test_a_run_without_a_model_is_refused_with_the_next_command(tmp_path: Path) -> None:
    async with opened({}) as app:
        with pytest.raises(UsageError) as caught:
            app.settings(tmp_path)
    assert caught.value.exit_code == 2
    assert "holdfast init" in caught.value.hint


async def test_settings_are_those_of_the_configuration(tmp_path: Path) -> None:
    config = {"model": "openai:gpt-5.5", "autonomy": "read-only", "limits": {"turns": 3, "cost_usd": "0.10"}}
    async with opened(config) as app:
        chosen = app.settings(tmp_path, deny_tools=("shell",))
        asked = app.settings(tmp_path, model="ollama:x", is_terminal=True).settings
    settings = chosen.settings
    assert (settings.model.facts.name, settings.tools.workspace) == ("openai:gpt-5.5", str(tmp_path))
    assert (settings.limits.turns, settings.limits.cost_microusd, settings.limits.is_cost_set) == (
        3,
        100_000,
        True,
    )
    assert (settings.posture.autonomy, settings.posture.approve_by, settings.tools.deny_tools) == (
        "read-only",
        "wait",
        ("shell",),
    )
    assert (asked.model.facts.name, asked.posture.approve_by) == ("ollama:x", "prompt")


async def test_a_workspace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with opened({"model": "ollama:x"}) as app:
        with pytest.raises(UsageError, match="is not a folder"):
            app.settings(tmp_path / "none")


@pytest.mark.requirement("L2-07")
async def test_a_set_cost_limit_refuses_a_model_of_unknown_price(tmp_path: Path) -> None:
    unknown = "huggingface:someone/model"
    async with opened({"model": unknown, "limits": {"cost_usd": "1.00"}}) as app:
        with pytest.raises(UsageError, match="price of huggingface:someone/model is not known") as caught:
            app.settings(tmp_path)
        assert f'[catalog."{unknown}"]' in caught.value.hint
    async with opened({"model": unknown}) as app:
        warnings = app.settings(tmp_path).warnings
    assert sum(warning.startswith("Cost unknown") for warning in warnings) == 1
    priced = {unknown: {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0, "context_tokens": 8_000}}
    async with opened({"model": unknown, "limits": {"cost_usd": "1.00"}, "catalog": priced}) as app:
        chosen = app.settings(tmp_path)
    assert (chosen.settings.model.facts.price, chosen.settings.model.facts.price_source) == (
        "known",
        "catalog",
    )


async def test_a_script_is_recorded_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened({}) as app:
        assert app.facts("script:story.jsonl").model == str(tmp_path / "story.jsonl")


async def test_everything_is_closed_also_when_the_work_fails(tmp_path: Path) -> None:
    apps: list[App] = []

    async def work() -> None:
        async with opened({}, Home(tmp_path, tmp_path / "config.toml")) as app:
            apps.append(app)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    with pytest.raises(StorageError, match="closed"):
        await apps[0].store.last_seq("x")


class Stumbling:
    """A provider that cannot be closed."""

    wire: Any = None

    async def respond(self, attempt: ModelAttempt) -> ModelReply | ModelFailure:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise OSError("its connection is gone")


@pytest.mark.requirement("L7")
@pytest.mark.parametrize("outcome", [None, KeyError("what really happened")])
async def test_a_room_that_cannot_be_closed_hides_no_outcome_and_keeps_no_other_open(
    tmp_path: Path, outcome: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path / "h", tmp_path / "h" / "config.toml")
    with pytest.raises(KeyError) if outcome else nullcontext():
        async with opened({}, home) as app:
            app.providers.made["stumbling", 0] = Stumbling()
            if outcome:
                raise outcome
    assert "stumbling could not be cleared up" in caplog.text
    with pytest.raises(StorageError, match="closed"):
        await app.store.sessions()
