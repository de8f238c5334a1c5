"""No secret is stored, by whatever door it comes in: the files of the home are looked through byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Result, tool
from holdfast.app import App, open_app
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import UsageError
from holdfast.protocol.commands import Pause, Resolve, Send, Stop, owner
from holdfast.protocol.events import Responded
from holdfast.protocol.messages import Reasoning
from holdfast.protocol.ports import Tool
from holdfast.runtime.fold import readable
from holdfast.testing.model_replies import ReplyCall
from holdfast.testing.model_server import ModelServer, Reply

KNOWN = "hush" + "-this-is-7f3a9c1e"
"""The value of a provider's variable."""
LIKELY = "sk-" + "proj-" + "pQ9wTxu4Fg7Lm2Zc8Rb5Hn3K"
"""What a key looks like."""

NAMED = "quiet" + "-this-is-5b2d8f0a"
"""The value of a variable whose name says that it is a secret."""

each_kind = pytest.mark.parametrize("secret", [KNOWN, LIKELY, NAMED], ids=["known", "likely", "named"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KNOWN)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KNOWN)
    monkeypatch.setenv("DEPLOY_TOKEN", NAMED)


def stored(home: Path) -> str:
    """All that the home holds, except what is kept of the edited files themselves."""
    files = [path for path in home.rglob("*") if path.is_file() and home / "files" not in path.parents]
    assert any(path.suffix == ".db" for path in files)
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


async def played(
    home: Path, replies: Sequence[Reply], tools: Sequence[Tool] = (), wire: str = "openai", **said: Any
) -> Result:
    """What came of a run against a model server, in a home that is closed again."""
    async with ModelServer(replies) as server:
        base_url = server.openai_url if wire == "openai" else server.url
        config = {"providers": {wire: {"base_url": base_url}}, "catalog": {f"{wire}:m": FREE}}
        async with Agent(model=f"{wire}:m", home=home, config=config, tools=tools, **said) as agent:
            return await agent.run("Go on.")


FREE = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0, "context_tokens": 100_000}
DONE = Reply(text="Done.")


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_instructions_are_stored_masked(tmp_path: Path, secret: str) -> None:
    await played(tmp_path / "home", [DONE], instructions=f"The key is {secret} today.")
    assert secret not in stored(tmp_path / "home")
    assert "The key is [redacted:" in stored(tmp_path / "home")


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_whatever_a_model_says_is_stored_masked(tmp_path: Path, secret: str) -> None:
    call = ReplyCall(secret, {"a": 1}, id=secret)
    replies = [
        Reply(text=f"It is {secret}.", reasoning=f"So {secret}.", headers={"x-request-id": secret}),
        Reply(text="I call.", tool_calls=(call, ReplyCall("add", {"b": secret}))),
        DONE,
    ]
    home = tmp_path / "home"
    await played(home, replies[:1])
    await played(home, replies[1:])
    assert secret not in stored(home)
    assert "So [redacted:" in stored(home), "nobody signed that thought"


@pytest.mark.requirement("A4", "C7", "H5")
@each_kind
async def test_the_outline_of_a_long_result_says_no_secret_that_the_result_had_in_escapes(
    tmp_path: Path, secret: str
) -> None:
    hidden = "".join(f"\\u{ord(char):04x}" for char in secret)

    @tool(effect="read")
    def fetched() -> str:
        """Return a long JSON text."""
        return f'{{"note": "It is {hidden}.", "items": [{", ".join(["1234567890"] * 5_000)}]}}'

    home = tmp_path / "home"
    await played(home, [Reply(tool_calls=(ReplyCall("fetched", {}),)), DONE], [fetched])
    assert secret not in stored(home)
    assert "It is [redacted:" in stored(home), "the outline shows the text"


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_a_signed_thought_with_a_secret_is_dropped_and_one_without_is_kept(
    tmp_path: Path, secret: str
) -> None:
    thoughts = [f"I saw {secret} there.", "I saw nothing."]
    for number, thought in enumerate(thoughts):
        home = tmp_path / str(number)
        await played(home, [Reply(text="Done.", reasoning=thought)], wire="anthropic")
        config = load_only({})
        async with open_app(config, Home(home, home / "config.toml")) as app:
            (row,) = await app.store.sessions()
            records = [readable(each) for each in await app.store.read(row.session)]
        parts = [part for each in records if isinstance(each.event, Responded) for part in each.event.parts]
        assert [part.text for part in parts if isinstance(part, Reasoning)] == thoughts[1:] * number
        assert secret not in stored(home)


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_a_failure_of_a_model_is_stored_masked(tmp_path: Path, secret: str) -> None:
    result = await played(tmp_path / "home", [Reply(status=400, message=f"the key {secret} is bad")])
    assert result.status == "failed"
    assert secret not in result.message + stored(tmp_path / "home")
    assert "the key [redacted" in stored(tmp_path / "home")


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_results_failures_and_descriptions_of_tools_are_stored_masked(
    tmp_path: Path, secret: str
) -> None:
    def leak(how: str) -> str:
        if how == "raise":
            inner = secret
            raise ValueError(f"no {inner} here")
        return f"found {secret}"

    leak.__doc__ = f"Tell {secret} or raise it."
    replies = [
        Reply(tool_calls=(ReplyCall("leak", {"how": "raise"}), ReplyCall("leak", {"how": "tell"}))),
        DONE,
    ]
    await played(tmp_path / "home", replies, tools=[tool(effect="read")(leak)])
    assert secret not in stored(tmp_path / "home")
    for words in ("no [redacted:", "found [redacted:", "Tell [redacted:"):
        assert words in stored(tmp_path / "home"), words


async def opened(app: App, folder: Path) -> tuple[str, Send]:
    """A session, and words for it."""
    settings = app.settings(folder, model="openai:m").settings
    return await app.controller.open(), Send("Go on.", settings)


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_whatever_a_sender_says_is_stored_masked(tmp_path: Path, secret: str) -> None:
    home = tmp_path / "home"
    config = load_only({"catalog": {"openai:m": FREE}})
    async with open_app(config, Home(home, home / "config.toml")) as app:
        session, send = await opened(app, tmp_path)
        said = [send, Send(f"use {secret}", send.settings), Pause(), Resolve("none", "deny", secret)]
        for body in (*said, Stop(f"because of {secret}")):
            await app.controller.submit(session, owner(secret, "telegram"), body)
        assert secret not in stored(home)
        await app.controller.drive(session)
    assert secret not in stored(home)
    assert "because of [redacted:" in stored(home)
    assert "telegram:[redacted:" in stored(home)


@pytest.mark.requirement("A4", "H5")
@each_kind
async def test_a_name_that_holds_a_secret_is_refused(tmp_path: Path, secret: str) -> None:
    home, config = tmp_path / "home", load_only({"catalog": {"openai:m": FREE}})
    place = tmp_path / secret
    place.mkdir()
    async with open_app(config, Home(home, home / "config.toml")) as app:
        session, send = await opened(app, tmp_path)
        with pytest.raises(UsageError, match="name of the session"):
            await app.controller.open(f"cli:{secret}")
        with pytest.raises(UsageError, match="name of the session"):
            await app.controller.begin(f"cli:{secret}", owner("cli"), send)
        with pytest.raises(UsageError, match="id of the command"):
            await app.controller.submit(session, owner("cli"), send, secret)
        with pytest.raises(UsageError, match="workspace"):
            await app.controller.submit(session, owner("cli"), (await opened(app, place))[1])
    assert secret not in stored(home)
