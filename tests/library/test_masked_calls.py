"""Arguments that hold a secret, or what looks like one: what runs, what is refused, and what is stored of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Delta, tool
from holdfast.protocol.events import (
    ApprovalRequested,
    Record,
    Responded,
    ToolCallAbandoned,
    ToolCallFinished,
    ToolCallRefused,
    ToolCallStarted,
)
from holdfast.protocol.messages import calls_of
from holdfast.runtime.fold import readable
from tests.library.test_secrets import stored

KNOWN = "hush" + "-this-is-7f3a9c1e"
LOOKS = "Tr0ub4dor" + "-and-3"
"""The value behind `password = `, which only looks like a secret."""
LONG = "".join(f"Zk{number}q" for number in range(40))
"""Longer than what a refusal quotes."""
CODE = f'user = "me"\npassword = "{LOOKS}"\nurl = "https://me:{LOOKS}@host/"\nrest = "\\x7f\\t"\n'
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "write_file": ("write_file", {"path": "conf.py", "content": CODE}),
    "edit_file": ("edit_file", {"path": "conf.py", "old": "TO BE FILLED IN\n", "new": CODE}),
    "shell": ("shell", {"command": f"cat > conf.py <<'END'\n{CODE}END\ncat conf.py"}),
}
each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KNOWN)


@tool(effect="read", isolation="process")
def where(password: str) -> str:
    """Tell where the arguments came from."""
    return f"{Path('/proc/self/fd/0').readlink()} {len(password)}"


class Desk:
    """A home, a workspace, and a model that makes one call and then says Done."""

    def __init__(self, folder: Path) -> None:
        self.home, self.workspace, self.model = folder / "home", folder / "ws", folder / "model.jsonl"
        self.workspace.mkdir()
        self.file = self.workspace / "conf.py"
        self.file.write_text("TO BE FILLED IN\n")

    def agent(self, *lines: dict[str, Any], **said: Any) -> Agent:
        """Someone who hears these lines from the model."""
        if lines:
            self.model.write_text("\n".join(map(json.dumps, lines)))
        config = {"autonomy": "full", **said}
        return Agent(
            model=f"script:{self.model}", home=self.home, workspace=self.workspace, tools=["*"], config=config
        )

    async def run(self, name: str, arguments: dict[str, Any] | str, session: str = "cli:it") -> list[Record]:
        """What was recorded of the call."""
        call = {"tool_calls": [{"name": name, "arguments": arguments}]}
        async with self.agent(call, {"text": "Done."}) as agent:
            await agent.run("Go on.", session=session)
            return await recorded(agent, session)


async def recorded(agent: Agent, name: str = "cli:it") -> list[Record]:
    app = await agent._open()
    (session,) = await app.store.find(name)
    return [readable(each) for each in await app.store.read(session)]


def the(kind: type[Any], records: list[Record]) -> Any:
    (found,) = [record.event for record in records if isinstance(record.event, kind)]
    return found


def asked(records: list[Record]) -> Any:
    (call,) = [
        c for record in records if isinstance(record.event, Responded) for c in calls_of(record.event.parts)
    ]
    return call


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.requirement("A4", "C3", "H5")
@each_way
async def test_a_call_runs_just_as_the_model_wrote_it_and_its_copies_are_masked(desk: Desk, way: str) -> None:
    records = await desk.run(*WAYS[way])
    assert the(ToolCallFinished, records).result.status == "ok"
    assert desk.file.read_text() == CODE
    assert LOOKS not in stored(desk.home)
    assert asked(records).is_masked
    assert "[redacted:" in asked(records).arguments
    assert json.loads(asked(records).arguments).keys() == WAYS[way][1].keys()


@pytest.mark.requirement("A4", "C3", "H5")
@each_way
async def test_a_call_without_a_secret_is_stored_as_the_model_wrote_it(desk: Desk, way: str) -> None:
    name, arguments = WAYS[way]
    plain = {key: value.replace(LOOKS, "").replace('""', "None") for key, value in arguments.items()}
    written = json.dumps(plain, indent=1)
    records = await desk.run(name, written)
    assert asked(records).arguments == written
    assert not asked(records).is_masked


@pytest.mark.requirement("A4", "C3", "C15")
@each_way
async def test_a_call_with_the_value_of_a_known_secret_is_refused_and_told_what_to_refer_to(
    desk: Desk, way: str
) -> None:
    name, arguments = WAYS[way]
    spelled = json.dumps({key: value.replace(LOOKS, KNOWN) for key, value in arguments.items()})
    hidden = spelled.replace(KNOWN, "".join(f"\\u{ord(character):04x}" for character in KNOWN))
    for number, written in enumerate((spelled, hidden)):
        records = await desk.run(name, written, session=f"cli:{number}")
        refused = the(ToolCallRefused, records)
        assert "the secret OPENAI_API_KEY" in refused.failure.message
        assert desk.file.read_text() == "TO BE FILLED IN\n"
        assert KNOWN not in stored(desk.home)
        assert "\\u0068\\u0075" not in stored(desk.home)


@pytest.mark.requirement("A4", "H5")
async def test_what_a_masked_call_prints_is_masked_too(desk: Desk) -> None:
    command = f"password='{LOOKS}'; echo so: $password; echo $password >&2; exit 3"
    records = await desk.run("shell", {"command": command})
    result = the(ToolCallFinished, records).result
    assert result.text.startswith("so: [redacted:secret]\n[redacted:secret]\n")
    assert LOOKS not in stored(desk.home)


@pytest.mark.requirement("A4", "H5", "S15")
async def test_who_watches_a_masked_call_sees_nothing_of_the_secret_in_what_it_prints(desk: Desk) -> None:
    command = f"password='{LOOKS}'; echo so: $password and more; echo $password"
    lines = [{"tool_calls": [{"name": "shell", "arguments": {"command": command}}]}, {"text": "Done."}]
    async with desk.agent(*lines) as agent:
        heard = [item async for item in agent.stream("Go on.", session="cli:it")]
    printed = "".join(item.text for item in heard if isinstance(item, Delta) and item.kind == "tool_output")
    assert printed == "so: [redacted:secret] and more\n[redacted:secret]\n"
    assert not any(LOOKS in repr(item) for item in heard)


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("is_masked", [True, False])
async def test_no_character_of_the_arguments_is_changed(desk: Desk, is_masked: bool) -> None:
    odd = "del \x7f, nul \x00, bell \x07, bom \ufeff, lines \u2028 \r\n end \u0301 \U0001f600 \\u0041 trailing \n\n"
    content = odd + (CODE if is_masked else "")
    records = await desk.run("write_file", {"path": "conf.py", "content": content})
    assert asked(records).is_masked is is_masked
    assert desk.file.read_bytes() == content.encode()


@pytest.mark.requirement("A4", "H5")
async def test_what_a_gate_says_about_a_masked_call_is_masked(desk: Desk) -> None:
    records = await desk.run("write_file", {"path": "a", "content": CODE, "mode": f"password={LOOKS}"})
    assert the(ToolCallRefused, records).failure.code == "tool_validation"
    assert LOOKS not in stored(desk.home)


@pytest.mark.requirement("A4", "C3", "H5")
@each_way
async def test_an_approval_in_the_same_process_runs_what_the_model_wrote(desk: Desk, way: str) -> None:
    call = {"tool_calls": [{"name": WAYS[way][0], "arguments": WAYS[way][1]}]}
    async with desk.agent(call, {"text": "Done."}, autonomy="supervised", approve_by="wait") as agent:
        result = await agent.run("Go on.", session="cli:it")
        if way == "shell":
            assert result.status == "waiting"
            (row,) = await agent.approvals()
            assert row.is_masked
            assert LOOKS not in row.arguments
            await agent.approve(row.id)
            await agent.resume("cli:it")
        records = await recorded(agent)
    assert the(ToolCallFinished, records).result.status == "ok"
    assert desk.file.read_text() == CODE
    assert LOOKS not in stored(desk.home)


@pytest.mark.requirement("A4", "C3", "H5")
async def test_an_approval_after_the_process_is_gone_abandons_the_call_and_the_model_may_make_it_again(
    desk: Desk,
) -> None:
    call = {"tool_calls": [{"name": "shell", "arguments": WAYS["shell"][1]}]}
    async with desk.agent(call, call, {"text": "Done."}, autonomy="supervised", approve_by="wait") as agent:
        await agent.run("Go on.", session="cli:it")
    async with desk.agent(autonomy="supervised", approve_by="wait") as agent:
        (row,) = await agent.approvals()
        await agent.approve(row.id)
        await agent.resume("cli:it")
        records = await recorded(agent)
        assert "make it again" in the(ToolCallAbandoned, records).text
        assert not any(isinstance(record.event, ToolCallStarted) for record in records)
        assert desk.file.read_text() == "TO BE FILLED IN\n"
        (row,) = await agent.approvals()
        await agent.approve(row.id)
        assert (await agent.resume("cli:it")).status == "done"
    assert desk.file.read_text() == CODE


@pytest.mark.requirement("C3", "C15")
async def test_what_is_stored_of_an_approval_tells_nothing_that_could_be_tried_out(desk: Desk) -> None:
    seals = set()
    for number in range(2):
        async with desk.agent(
            {"tool_calls": [{"name": "shell", "arguments": WAYS["shell"][1]}]}, autonomy="supervised"
        ) as agent:
            await agent.run("Go on.", session=f"cli:{number}")
            asking = the(ApprovalRequested, await recorded(agent, f"cli:{number}"))
            seals |= {asking.seal, asking.sha256}
    assert len(seals) == 4, "the same arguments look different in each process"


@pytest.mark.requirement("A4", "C3")
async def test_what_a_function_in_a_process_of_its_own_is_given_never_gets_onto_a_disk(desk: Desk) -> None:
    call = {"tool_calls": [{"name": "where", "arguments": {"password": LOOKS}}]}
    desk.model.write_text("\n".join(map(json.dumps, [call, {"text": "Done."}])))
    async with Agent(model=f"script:{desk.model}", home=desk.home, tools=[where]) as agent:
        await agent.run("Go on.", session="cli:it")
        records = await recorded(agent)
    assert the(ToolCallFinished, records).result.text == f"/memfd:holdfast (deleted) {len(LOOKS)}"
    assert asked(records).is_masked


@pytest.mark.requirement("A4", "H5")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a.txt", "content": {"password": LONG}}),
        ("read_file", {"path": "a.txt", "limit": f"password={LONG}"}),
        ("shell", {"command": {"run": f"x; password={LONG}"}}),
    ],
)
async def test_a_refusal_quotes_no_part_of_a_masked_value(
    desk: Desk, name: str, arguments: dict[str, Any]
) -> None:
    the(ToolCallRefused, await desk.run(name, arguments))
    assert LONG[:8] not in stored(desk.home)
