"""The scenarios: one for each way in which a session can go on or come to an end."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from holdfast.protocol.commands import Continue, Pause, Resolve, Send, Stop
from holdfast.protocol.limits import Limits, ModelFacts
from holdfast.protocol.messages import Attachment
from holdfast.protocol.notify import NotificationDue, Notified
from holdfast.protocol.ports import Check, Provider, Tool
from holdfast.protocol.settings import Repairs, Settings, changed
from holdfast.providers.anthropic import AnthropicWire
from holdfast.providers.script import script_from_lines
from holdfast.testing.scenarios import Scenario, Step, World, say
from holdfast.tools import function
from holdfast.tools.context import Context
from holdfast.tools.function import FunctionTool

PRICED = ModelFacts("script", "model", input_microusd_per_mtok=3_000_000, output_microusd_per_mtok=15_000_000)

_MADE: dict[CodeType, FunctionTool[..., Any]] = {}


def tool(**options: Any) -> Callable[[Callable[..., Any]], FunctionTool[..., Any]]:
    """`@tool` for a function that is made for each world. It is described once: that takes a millisecond, and there
    are thousands of worlds."""

    def decorate(made: Callable[..., Any]) -> FunctionTool[..., Any]:
        first = _MADE.get(made.__code__) or function.tool(**options)(made)
        _MADE[made.__code__] = first
        return FunctionTool(made, first.spec, first._signature, None, None)

    return decorate


def tools_of(world: World) -> Iterable[Tool]:
    """One tool of each kind, all of which tell the world that they were entered."""

    @tool(effect="read")
    async def look(name: str, context: Context) -> str:
        """Look at something."""
        world.called.append(("look", context.key))
        await asyncio.sleep(0.2)
        return f"{name} is fine"

    @tool(effect="write")
    async def note(text: str, context: Context) -> str:
        """Write something down; twice is seen."""
        world.called.append(("note", context.key))
        world.effects.append(text)
        await asyncio.sleep(0.1)
        return f"noted {text}"

    @tool(effect="write", on_interrupt="rerun")
    async def charge(amount: int, context: Context) -> str:
        """Charge a card; idempotent by the key."""
        world.called.append(("charge", context.key))
        world.by_key[context.key] = str(amount)
        await asyncio.sleep(0.1)
        return f"charged {amount}"

    @tool(effect="exec", on_interrupt="rerun")
    async def ring(bell: str, context: Context) -> str:
        """Ring a bell; idempotent by the key."""
        world.called.append(("ring", context.key))
        world.by_key[context.key] = bell
        return f"rang {bell}"

    @tool(effect="network")
    async def send(text: str, context: Context) -> str:
        """Send something away."""
        world.called.append(("send", context.key))
        world.effects.append(text)
        return f"sent {text}"

    @tool(effect="network")
    async def pay(amounts: list[int], context: Context) -> str:
        """Pay."""
        world.called.append(("pay", context.key))
        world.effects.append(str(amounts))
        return f"paid {sum(amounts)}"

    @tool(effect="read", timeout_s=1_000.0)
    async def wait(seconds: float, context: Context) -> str:
        """Take long, and say something now and then."""
        world.called.append(("wait", context.key))
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            context.progress(".")
        return "waited"

    @tool(effect="read", timeout_s=1_000.0)
    async def sulk(seconds: float, context: Context) -> str:
        """Take long without a word."""
        world.called.append(("sulk", context.key))
        await asyncio.sleep(seconds)
        return "sulked"

    @tool(effect="read")
    async def shoot(of: str, context: Context[None]) -> list[str | bytes]:
        """Take a picture."""
        world.called.append(("shoot", context.key))
        return [f"Here is {of}:", PICTURE]

    @tool(effect="read")
    async def fail(why: str, context: Context) -> str:
        """Fail."""
        world.called.append(("fail", context.key))
        raise RuntimeError(why * 2_000)

    return (look, note, charge, ring, send, pay, wait, sulk, shoot, fail)


def call(tool_name: str, /, **arguments: Any) -> dict[str, Any]:
    """A tool call of a script's line."""
    return {"name": tool_name, "arguments": arguments}


LONG = "A long name of something that the tool looks at, so that a compaction of the view is worth it. " * 3


def calls(*some: dict[str, Any], text: str = "", **more: Any) -> dict[str, Any]:
    """A script's line that makes calls."""
    return {"text": text, "tool_calls": list(some), **more}


def words(text: str, **more: Any) -> dict[str, Any]:
    """A script's line that answers."""
    return {"text": text, **more}


def judged(decision: str, **more: Any) -> dict[str, Any]:
    """A script's line that reflects."""
    answer = {"progress": "slow", "decision": decision, "reason": "It takes long.", "next": "Which one?"}
    return {"text": json.dumps(answer), "purpose": "reflection", **more}


def used(tokens_in: int, tokens_out: int) -> dict[str, int]:
    """What a line says it used."""
    return {"input_tokens": tokens_in, "output_tokens": tokens_out}


SCHEMA = '{"properties":{"count":{"type":"integer"}},"required":["count"],"type":"object"}'
DONE = words("It is done.")
SUPERVISED = {"autonomy": "supervised"}


class Bell:
    """Notifies the world, once."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def notify(self, session: str, workspace: str, due: NotificationDue, check: Check) -> Notified:
        check()
        told = f"{due.key} {due.about}"
        if told in self._world.effects:
            return Notified("unknown", "it was begun before")
        self._world.effects.append(told)
        await asyncio.sleep(0.1)
        return Notified("sent")

    async def aclose(self) -> None:
        """Nothing is open."""


DEFER = {**SUPERVISED, "approve_by": "defer"}


def _deferring(*after: dict[str, Any]) -> list[dict[str, Any]]:
    """A call that waits for a person, work on something else, and what comes after the decision."""
    asked, other = calls(call("send", text="s")), calls(call("look", name="x"), call("send", text="s"))
    return [asked, other, words("Nothing else is left."), *after]


def _resolving(decision: Any, note: str = "") -> Any:
    return _with(Step(Resolve("", decision, note)))


def _asks(settings: Settings) -> tuple[Step, ...]:
    return (say("Do it.", settings),)


def _with(*steps: Step) -> Any:
    return lambda settings: (*_asks(settings), *steps)


def _other_wire(lines: list[dict[str, Any]]) -> Provider:
    provider = script_from_lines(lines, "other")
    provider.wire = AnthropicWire("other", "blocks")
    return provider


_SWITCHED = [
    calls(call("look", name="x"), text="Looking."),
    words("First."),
    calls(call("note", text="n")),
    DONE,
]
_SHOWN = [
    calls(call("shoot", of="a house"), call("look", name="x")),
    words("First."),
    calls(call("shoot", of="a tree")),
    DONE,
]


def _plan(*statuses: str) -> dict[str, Any]:
    """A call that tells a plan of as many steps."""
    steps = [{"text": f"Step {number}.", "status": status} for number, status in enumerate(statuses, 1)]
    return call("update_plan", steps=steps, goal="All of it.")


def _answer(confidence: Any, text: str = "42.") -> dict[str, Any]:
    """A call that answers."""
    return call("answer", text=text, confidence=confidence, reasons=["I looked."], caveats=[])


_PLANNED = [
    calls(_plan("in_progress", "pending"), call("look", name="x")),
    words("First."),
    calls(_plan("in_progress", "pending"), call("note", text="n"), _plan("done", "in_progress")),
    DONE,
]
_OTHER = ModelFacts("other", "model", price="free")


def _switching(settings: Settings) -> tuple[Step, ...]:
    return (say("Do it.", settings), say("Go on.", changed(settings, facts=_OTHER)))


TEXT, PICTURE = b"a log\n" * 40, b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100


def _shown() -> tuple[Attachment, Attachment]:
    """A text and a picture."""
    log, picture = (hashlib.sha256(blob).hexdigest() for blob in (TEXT, PICTURE))
    shown = Attachment("file", "a.png", "image/png", len(PICTURE), picture, weight_bytes=16_000)
    return Attachment("stdin", "", "text/plain", len(TEXT), log), shown


def _attaching(settings: Settings) -> tuple[Step, ...]:
    """Messages with parts: a text and a picture, and the same picture again."""
    return Step(Send("Do it.", settings, _shown())), Step(Send("And this.", settings, _shown()[1:]))


SCENARIOS = [
    Scenario("text only", [words("Hello there.", chunks=3, delay_s=0.3)]),
    Scenario(
        "several turns",
        [
            calls(call("write_file", path="a/b.txt", content="one\n" * 30), text="I write."),
            calls(call("edit_file", path="a/b.txt", old="one\n" * 30, new="two\n")),
            calls(call("read_file", path="a/b.txt"), call("note", text="mid"), call("charge", amount=5)),
            words("Done with several turns."),
        ],
        tools_of,
    ),
    Scenario(
        "side by side",
        [
            calls(
                call("look", name="a"),
                call("look", name="b"),
                call("look", name="c"),
                call("note", text="after"),
                call("look", name="d"),
                call("charge", amount=1),
            ),
            DONE,
        ],
        tools_of,
    ),
    Scenario("rerun", [calls(call("charge", amount=7)), calls(call("charge", amount=8)), DONE], tools_of),
    Scenario(
        "probe",
        [
            calls(call("write_file", path="x.txt", content="1")),
            calls(call("edit_file", path="x.txt", old="1", new="1 1")),
            calls(call("edit_file", path="x.txt", old="1 1", new="1 1 1")),
            DONE,
        ],
    ),
    Scenario("unknown", [calls(call("note", text="a")), calls(call("note", text="b")), DONE], tools_of),
    Scenario(
        "approved",
        [calls(call("send", text="s"), call("look", name="x")), DONE],
        tools_of,
        _with(Step(Resolve("", "approve", "fine"))),
        SUPERVISED,
    ),
    Scenario(
        "read as meant", [calls(call("charge", amount="7")), calls(call("look", name="x")), DONE], tools_of
    ),
    Scenario(
        "approved as meant",
        [calls(call("pay", amounts="7")), DONE],
        tools_of,
        _with(Step(Resolve("", "approve", "fine"))),
        SUPERVISED,
    ),
    Scenario(
        "granted",
        [calls(call("ring", bell="a")), calls(call("look", name="x"), call("ring", bell="a")), DONE],
        tools_of,
        _with(Step(Resolve("", "approve", makes_grant=True))),
        SUPERVISED,
    ),
    Scenario(
        "deferred", _deferring(calls(call("send", text="s")), DONE), tools_of, _resolving("approve"), DEFER
    ),
    Scenario("deferred and denied", _deferring(DONE), tools_of, _resolving("deny", "not today"), DEFER),
    Scenario(
        "deferred and granted",
        _deferring(calls(call("send", text="s")), DONE),
        tools_of,
        _with(Step(Resolve("", "approve", makes_grant=True))),
        DEFER,
    ),
    Scenario(
        "deferred and expired",
        _deferring(DONE),
        tools_of,
        settings={**DEFER, "approval_deadline_s": 86_400.0},
    ),
    Scenario(
        "deferred question",
        [calls(call("ask_user", question="Red?")), calls(call("look", name="x")), words("I wait."), DONE],
        tools_of,
        _resolving("answer", "blue"),
        DEFER,
    ),
    Scenario(
        "decided while it works",
        [calls(call("send", text="s")), calls(call("wait", seconds=20)), calls(call("send", text="s")), DONE],
        tools_of,
        _with(Step(Resolve("", "approve"), on="ToolCallStarted")),
        DEFER,
    ),
    Scenario(
        "notified",
        [calls(call("send", text="s")), calls(call("look", name="x")), DONE],
        tools_of,
        _with(Step(Resolve("", "approve"))),
        {**SUPERVISED, "notify_on": ("waiting", "done")},
        notifier=Bell,
    ),
    Scenario(
        "notified of a failure",
        [{"error": {"status": 401}}],
        settings={"notify_on": ("waiting", "failed")},
        notifier=Bell,
    ),
    Scenario(
        "too many calls an hour",
        [calls(call("look", name=name)) for name in "abc"] + [DONE],
        tools_of,
        _with(Step(Resolve("", "approve"))),
        {"actions_per_hour": 2},
    ),
    Scenario(
        "grant lapsed",
        [
            calls(call("ring", bell="a")),
            calls(call("ring", bell="a"), call("wait", seconds=200)),
            calls(call("ring", bell="a")),
            DONE,
        ],
        tools_of,
        _with(Step(Resolve("", "approve", makes_grant=True)), Step(Resolve("", "approve"))),
        {**SUPERVISED, "grants_last_s": 120.0},
    ),
    Scenario(
        "denied",
        [calls(call("send", text="s")), DONE],
        tools_of,
        _with(Step(Resolve("", "deny", "not today"))),
        SUPERVISED,
    ),
    Scenario(
        "expired",
        [calls(call("send", text="s")), DONE],
        tools_of,
        settings={**SUPERVISED, "approval_deadline_s": 86_400.0},
    ),
    Scenario(
        "nobody to ask",
        [calls(call("send", text="s")), DONE],
        tools_of,
        settings={**SUPERVISED, "approve_by": "deny"},
    ),
    Scenario(
        "question",
        [calls(call("ask_user", question="Red or blue?", options=["red", "blue"])), DONE],
        steps=_with(Step(Resolve("", "answer", "blue"))),
    ),
    Scenario(
        "question answered by words",
        [calls(call("ask_user", question="Which?")), DONE],
        steps=lambda settings: (say("Do it.", settings), say("the blue one", settings)),
    ),
    Scenario(
        "retries",
        [
            {"error": {"status": 429, "retry_after": 2}},
            {"error": {"status": 500}},
            calls(call("look", name="x")),
            {"error": {"status": 503}},
            DONE,
        ],
        tools_of,
    ),
    Scenario("parked", [{"error": {"status": 429, "retry_after": 3_600}}, DONE]),
    Scenario("given up", [{"error": {"status": 500}, "repeat": True}], settings={"model_attempts": 3}),
    Scenario("refused key", [{"error": {"status": 401}}]),
    Scenario(
        "budget",
        [
            calls(call("look", name="a"), usage=used(500, 300)),
            calls(call("look", name="b"), usage=used(900, 300)),
            calls(call("look", name="c"), usage=used(1_300, 300)),
            {**calls(call("look", name="d"), text="So far.", usage=used(1_000, 100)), "repeat": True},
        ],
        tools_of,
        settings={"facts": PRICED, "max_output_tokens": 400},
        limits=Limits(cost_microusd=40_000, is_cost_set=True),
        is_timed=True,
    ),
    Scenario(
        "turn limit",
        [calls(call("look", name="a")), calls(call("look", name="b")), words("What I have.")],
        tools_of,
        limits=Limits(turns=2),
    ),
    Scenario(
        "calls in the last pass",
        [calls(call("look", name="a")), calls(call("look", name="b"), call("note", text="no"))],
        tools_of,
        limits=Limits(turns=1),
    ),
    Scenario(
        "wall", [calls(call("wait", seconds=500)), DONE], tools_of, limits=Limits(wall_s=30.0), is_timed=True
    ),
    Scenario("idle model", [words("late", delay_s=50.0), DONE], limits=Limits(idle_s=10.0)),
    Scenario("idle tool", [calls(call("sulk", seconds=100.0)), DONE], tools_of, limits=Limits(idle_s=10.0)),
    Scenario(
        "paused",
        [calls(call("wait", seconds=5)), calls(call("note", text="later")), DONE],
        tools_of,
        _with(Step(Pause(), on="ToolCallStarted", delay_s=1.0), Step(Continue())),
    ),
    Scenario(
        "stopped in mid-stream",
        [words("word " * 50, chunks=50, delay_s=50.0)],
        steps=_with(Step(Stop(), on="ModelCallStarted", delay_s=10.0)),
        is_timed=True,
    ),
    Scenario(
        "stopped in mid-tool",
        [calls(call("wait", seconds=60), call("note", text="never"))],
        tools_of,
        _with(Step(Stop(), on="ToolCallStarted", delay_s=2.0)),
        is_timed=True,
    ),
    Scenario(
        "stopped and continued",
        [calls(call("wait", seconds=60)), calls(call("note", text="on")), DONE],
        tools_of,
        _with(Step(Stop(), on="ToolCallStarted", delay_s=2.0), Step(Continue())),
        is_timed=True,
    ),
    Scenario(
        "words join",
        [calls(call("wait", seconds=5)), words("With both.")],
        tools_of,
        lambda settings: (
            say("Do it.", settings),
            say("And that.", settings, on="ToolCallStarted", delay_s=1.0),
        ),
    ),
    Scenario(
        "two runs",
        [words("One."), calls(call("note", text="two")), words("Two.")],
        tools_of,
        lambda settings: (say("First.", settings), say("Second.", settings)),
    ),
    Scenario(
        "words while an approval waits",
        [calls(call("send", text="s"), call("look", name="x")), words("With both.")],
        tools_of,
        lambda settings: (say("Do it.", settings), say("And that.", settings), Step(Resolve("", "approve"))),
        SUPERVISED,
    ),
    Scenario(
        "stopped while an approval waits",
        [calls(call("look", name="x"), call("send", text="s"), call("note", text="never"))],
        tools_of,
        _with(Step(Stop("enough"))),
        SUPERVISED,
    ),
    Scenario(
        "token limit",
        [{**calls(call("look", name="a"), usage=used(1_000, 200)), "repeat": True}],
        tools_of,
        settings={"repeat_note": 40, "repeat_stop": 50},
        limits=Limits(tokens=10_000),
        is_timed=True,
    ),
    Scenario("empty once", [words(""), DONE]),
    Scenario("filtered", [calls(call("note", text="never"), text="I will", finish="refusal")], tools_of),
    Scenario(
        "repaired",
        [calls(call("look", name="x")), words("Seven."), words('```json\n{"count": 7}\n```')],
        tools_of,
        settings={"schema": SCHEMA},
    ),
    Scenario("never valid", [{**words('{"count": "7"}'), "repeat": True}], settings={"schema": SCHEMA}),
    Scenario("always empty", [{**words(""), "repeat": True}]),
    Scenario(
        "bad calls",
        [
            {"tool_calls": [{"name": "look", "arguments": '{"name": '}]},
            calls(call("look", wrong=1), call("lok", name="x")),
            calls(call("fail", why="because ")),
            calls(call("read_file", path="../../etc/passwd")),
            DONE,
        ],
        tools_of,
    ),
    Scenario(
        "not repaired",
        [{**calls(call("look", wrong=1)), "repeat": True}],
        tools_of,
        settings={"repairs": Repairs(schema=3)},
    ),
    Scenario(
        "stuck",
        [{**calls(call("look", name="same")), "repeat": True}],
        tools_of,
        settings={"repeat_note": 2, "repeat_stop": 4},
    ),
    # Each turn may change the workspace, so each response brings a survey.
    Scenario(
        "stalled",
        [{**calls(call("charge", amount=5)), "repeat": True}],
        tools_of,
        settings={"stall_turns": 3, "repeat_note": 40, "repeat_stop": 50},
    ),
    Scenario("failed before", [calls(call("fail", why="no"))] * 4 + [DONE], tools_of),
    Scenario(
        "overflow",
        [
            calls(call("look", name="x" * 3_000)),
            calls(call("look", name="y" * 3_000)),
            {"error": {"status": 400, "message": "maximum context length is 2000 tokens"}},
            DONE,
        ],
        tools_of,
    ),
    Scenario(
        "attachments",
        [calls(call("note", text="n")), calls(call("look", name="x")), words("One."), DONE],
        tools_of,
        _attaching,
        blobs=(TEXT, PICTURE),
    ),
    Scenario(
        "pictures from tools",
        [
            calls(call("shoot", of="a house"), call("look", name="x"), call("shoot", of="a tree")),
            calls(call("shoot", of="a house")),
            DONE,
        ],
        tools_of,
    ),
    Scenario(
        "pictures from tools on another wire",
        _SHOWN,
        tools_of,
        _switching,
        others={"other:model": _other_wire(_SHOWN)},
    ),
    Scenario(
        "attachments on another wire",
        _SWITCHED,
        tools_of,
        lambda settings: (*_attaching(settings)[:1], say("Go on.", changed(settings, facts=_OTHER))),
        others={"other:model": _other_wire(_SWITCHED)},
        blobs=(TEXT, PICTURE),
    ),
    Scenario(
        "planned",
        [
            calls(call("note", text="too early"), call("look", name="x")),
            calls(_plan("in_progress", "pending"), call("note", text="one"), _plan("done", "pending")),
            calls(_plan("done", "in_progress"), call("charge", amount=5), _plan("pending", "pending")),
            calls(call("note", text="two"), _plan("done", "done")),
            DONE,
        ],
        tools_of,
        settings={"needs_plan": True},
    ),
    Scenario(
        "planned again",
        [
            calls(_plan("in_progress", "pending")),
            calls(call("fail", why="a "), call("fail", why="b ")),
            calls(_plan("dropped", "in_progress")),
            calls(_plan("dropped", "dropped"), call("note", text="n")),
            DONE,
        ],
        tools_of,
        settings={"after_failures": 2},
    ),
    Scenario(
        "planned on another wire",
        _PLANNED,
        tools_of,
        _switching,
        others={"other:model": _other_wire(_PLANNED)},
    ),
    Scenario(
        "reflections",
        [
            *[calls(call("look", name=str(number)), delay_s=0.2) for number in range(9)],
            DONE,
            judged("continue", delay_s=0.5),
            {"error": {"status": 429, "retry_after": 1}, "purpose": "reflection"},
            judged("adjust", delay_s=0.3),
            words("I think that it goes well.", purpose="reflection", delay_s=0.1),
            judged("pivot", delay_s=9.0),
        ],
        tools_of,
        settings={"reflect_turns": 1, "max_reflections": 6},
        is_timed=True,
    ),
    Scenario(
        "summaries",
        [
            *[calls(call("look", name=f"{number} {LONG}"), delay_s=0.2) for number in range(14)],
            DONE,
            words("I looked at many things.", purpose="summary", delay_s=0.3),
            words("", purpose="summary"),
            {"error": {"status": 500}, "purpose": "summary"},
            words("I looked again.", purpose="summary", delay_s=0.5),
            words("It is too long. " * 400, purpose="summary"),
            words("I look.", purpose="summary", delay_s=9.0),
        ],
        tools_of,
        settings={"compact_turns": 2, "max_messages": 14, "max_reflections": 0, "stall_turns": 200},
        is_timed=True,
    ),
    Scenario(
        "compacted in a small window",
        [*[calls(call("look", name=f"{number} {LONG}")) for number in range(14)], DONE],
        tools_of,
        lambda settings: (Step(Send(LONG, settings, _shown()[:1])),),
        settings={"max_messages": 12, "compactions_per_hour": 0, "max_reflections": 0, "stall_turns": 200},
        blobs=(TEXT,),
    ),
    Scenario(
        "reflection stops",
        [calls(call("look", name="x")), words("Done.", delay_s=30.0), judged("stop", delay_s=0.5)],
        tools_of,
        settings={"reflect_turns": 1},
        is_timed=True,
    ),
    Scenario(
        "reflection asks",
        [
            calls(call("look", name="x")),
            calls(call("look", name="y"), delay_s=3.0),
            DONE,
            judged("ask", delay_s=0.5),
        ],
        tools_of,
        lambda settings: (say("Do it.", settings), say("the blue one", settings)),
        settings={"reflect_turns": 1, "max_reflections": 1},
        is_timed=True,
    ),
    Scenario(
        "calibrated",
        [
            calls(call("note", text="n"), _answer(0.9)),
            calls(_answer(0.2)),
            calls(call("look", name="x")),
            calls(_plan("done"), _answer("0.3")),
        ],
        tools_of,
        settings={"is_calibrated": True},
    ),
    Scenario("asked for the call", [words("42."), calls(_answer(0.7))], settings={"is_calibrated": True}),
    Scenario("never the call", [words("42."), words("42.")], settings={"is_calibrated": True}),
    Scenario(
        "calibrated values",
        [
            calls(_answer(0.9)),
            words("x"),
            calls(_answer(0.1, '{"count": 7}')),
            calls(_answer(1, '{"count": 8}')),
        ],
        settings={"is_calibrated": True, "schema": SCHEMA},
    ),
    Scenario("another wire", _SWITCHED, tools_of, _switching, others={"other:model": _other_wire(_SWITCHED)}),
]

ENDS = {
    "not repaired": [("failed", "repair:schema")],
    "given up": [("failed", "provider_transient")],
    "refused key": [("failed", "provider_refused")],
    "notified of a failure": [("failed", "provider_refused")],
    "budget": [("limit", "cost")],
    "token limit": [("limit", "tokens")],
    "turn limit": [("limit", "turns")],
    "calls in the last pass": [("limit", "turns")],
    "wall": [("limit", "wall")],
    "stopped in mid-stream": [("interrupted", "stopped")],
    "stopped in mid-tool": [("interrupted", "stopped")],
    "stopped while an approval waits": [("interrupted", "enough")],
    "stopped and continued": [("interrupted", "stopped"), ("done", "answer")],
    "two runs": [("done", "answer")] * 2,
    "attachments": [("done", "answer")] * 2,
    "attachments on another wire": [("done", "answer")] * 2,
    "pictures from tools on another wire": [("done", "answer")] * 2,
    "planned on another wire": [("done", "answer")] * 2,
    "another wire": [("done", "answer")] * 2,
    "never valid": [("failed", "output_schema")],
    "filtered": [("failed", "refusal")],
    "always empty": [("failed", "empty_response")],
    "stuck": [("stuck", "repeat")],
    "stalled": [("stuck", "stall")],
    "reflection stops": [("stuck", "reflection")],
}
"""How the runs of a scenario end, where it is not one run with an answer."""

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
