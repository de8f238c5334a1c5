"""The `@tool` decorator: description, conversion, threads, processes, and what cannot be a tool."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Optional, TypedDict

import msgspec
import pytest

from holdfast.errors import Lapsed, UsageError
from holdfast.policy.protected import Own
from holdfast.protocol.ports import Tool
from holdfast.protocol.tools import FileChange, Files, Refused
from holdfast.sandbox import trees
from holdfast.tools import dispatcher
from holdfast.tools import function as function_module
from holdfast.tools.builtin import make_tools
from holdfast.tools.context import Context
from holdfast.tools.function import tool
from tests.tools import isolated_tools
from tests.tools.conftest import KEY, SESSION, Bench


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Box:
    name: str
    corners: list[Point]


class Options(TypedDict, total=False):
    deep: bool


@tool(effect="read", timeout_s=5)
async def add(a: int, b: int = 2) -> int:
    """Add two
    numbers.

    Longer words that a model does not need.

    Args:
        a: The first one,
            told at length.
        b (int): The second one.

    Returns:
        nothing: that counts
    """
    return a + b


@tool(effect="write", name="pack")
def describe_box(
    box: Box,
    mode: Literal["fast", "slow"],
    tags: list[str] | None = None,
    limit: Optional[int] = None,  # noqa: UP045 - the old spelling must work too
    options: Options = {},  # noqa: B006 - must not be shared
    extra: dict[str, Any] | str = "",
) -> dict[str, object]:
    """Describe it."""
    return {"type": type(box).__name__, "x": box.corners[0].x, "mode": mode, "tags": tags, "options": options}


def test_a_decorated_function_stays_the_function_that_it_was() -> None:
    asked: Tool = add
    assert asked.spec.name == "add"
    assert asyncio.run(add(1, b=1)) == 2
    assert inspect.unwrap(add) is add.function
    assert (add.__name__, add.__module__) == ("add", __name__)


def test_a_spec_comes_from_the_signature_and_the_docstring() -> None:
    assert add.spec.description == "Add two numbers."
    assert add.spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first one, told at length."},
            "b": {"type": "integer", "default": 2, "description": "The second one."},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (add.spec.effect, add.spec.on_interrupt, add.spec.timeout_s) == ("read", "rerun", 5)
    assert (describe_box.spec.name, describe_box.spec.on_interrupt) == ("pack", "unknown")
    properties = describe_box.spec.parameters["properties"]
    assert properties["mode"] == {"enum": ["fast", "slow"]}
    assert properties["tags"]["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
    assert set(describe_box.spec.parameters["$defs"]) == {"Box", "Options", "Point"}


async def test_arguments_arrive_as_the_annotated_types(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(add, describe_box)
    assert (await bench.call("add", a=1)).text == "3"
    result = await bench.call("pack", box={"name": "b", "corners": [{"x": 7}]}, mode="slow")
    assert json.loads(result.text) == {"type": "Box", "x": 7, "mode": "slow", "tags": None, "options": {}}
    refused = await bench.admit("pack", box={"name": "b", "corners": [{"x": "seven"}]}, mode="slow")
    assert isinstance(refused, Refused)
    assert isinstance(await bench.admit("pack", box={"name": "b", "corners": []}, mode="none"), Refused)
    assert isinstance(await bench.admit("add", a=1, c=1), Refused)


@pytest.mark.requirement("S14")
async def test_a_tool_is_handed_its_context_by_annotation_and_not_by_the_model(
    bench_of: Callable[..., Bench],
) -> None:
    @tool(effect="read")
    def tell(words: str, here: Context) -> str:
        """Tell."""
        here.progress(words)
        return f"{here.session} {here.key} {here.workspace}"

    bench = bench_of(tell)
    assert list(tell.spec.parameters["properties"]) == ["words"]
    assert (await bench.call("tell", words="hi")).text == f"{SESSION} {KEY} {bench.workspace}"
    await asyncio.sleep(0)
    assert bench.heard == ["hi"]
    assert isinstance(await bench.admit("tell", words="hi", here={}), Refused)


@pytest.mark.requirement("A6")
async def test_values_become_text(bench_of: Callable[..., Bench]) -> None:
    values = {"text": "Error: no error", "none": None, "data": [{"a": (1, 2)}], "odd": {"path": Path("/x")}}

    @tool(effect="read")
    def give(what: str) -> object:
        """Give."""
        return values[what]

    bench = bench_of(give)
    told = {what: await bench.call("give", what=what) for what in values}
    assert {result.status for result in told.values()} == {"ok"}
    assert [result.text for result in told.values()] == [
        "Error: no error",
        "",
        '[{"a":[1,2]}]',
        '{"path":"/x"}',
    ]


class Unknown:
    pass


def star(*values: int) -> None: ...
def untyped(value) -> None: ...
def strange(value: Unknown) -> None: ...
def missing(value: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def positional(value: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (star, "cannot be described"),
        (untyped, "needs a type"),
        (strange, "has no JSON Schema"),
        (missing, "a type was not found"),
        (positional, "cannot be described"),
    ],
)
def test_what_cannot_be_described_is_a_type_error_at_once(function: Callable[..., None], word: str) -> None:
    with pytest.raises(TypeError, match=word) as caught:
        tool(effect="read")(function)
    assert function.__name__ in str(caught.value)


@pytest.mark.requirement("S1")
def test_a_bare_decorator_takes_the_defaults_and_so_counts_as_executing() -> None:
    @tool
    def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    @tool()
    def whisper(text: str) -> str:
        """Say it softer."""
        return text.lower()

    loud: str = shout("tea")  # typed as the function was
    assert (loud, whisper("TEA")) == ("TEA", "tea")
    assert shout.spec == msgspec.structs.replace(
        whisper.spec, name="shout", description="Say it louder.", effect="exec", on_interrupt="unknown"
    )


@pytest.mark.parametrize("given", ["read", 3, add])
def test_what_is_no_function_is_told_what_to_write(given: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a function. Write @tool or @tool\(effect="):
        tool(given)


def test_a_probe_needs_a_plan_and_a_plan_a_probe() -> None:
    with pytest.raises(TypeError, match="must be set together"):
        tool(effect="write", on_interrupt="probe")(add.function)


def test_an_effect_that_there_is_not_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="read, write, exec, network"):
        tool(effect="ask")(add.function)


async def test_a_plan_of_its_own_reaches_the_admission(bench_of: Callable[..., Bench]) -> None:
    change = Files((FileChange("f", "", "abc"),))

    @tool(effect="write", on_interrupt="probe", plan=lambda name: change)
    def make(name: str) -> None:
        """Make."""

    admission = await bench_of(make).admit("make", name="f")
    assert (admission.on_interrupt, admission.expects) == ("probe", change)


@pytest.mark.requirement("C11", "H5")
async def test_a_function_whose_lease_is_over_is_not_called(bench_of: Callable[..., Bench]) -> None:
    called: list[str] = []

    @tool(effect="write")
    async def soon() -> None:
        """Runs in the event loop."""
        called.append("soon")

    @tool(effect="write")
    def aside() -> None:
        """Runs in a thread."""
        called.append("aside")

    def over() -> int:
        raise Lapsed("The lease lapsed.")

    bench = bench_of(soon, aside, isolated_tools.twice)
    for name, arguments in (("soon", "{}"), ("aside", "{}"), ("twice", '{"text":"a"}')):
        with pytest.raises(Lapsed):
            await bench.tools.run(name, arguments, bench.context(check=over))
    assert called == []


async def test_a_function_whose_lease_ends_meanwhile_sees_that_it_is_cancelled(
    bench_of: Callable[..., Bench],
) -> None:
    is_over = False

    def check() -> int:
        if is_over:
            raise Lapsed("The lease lapsed.")
        return 1

    @tool(effect="write")
    async def act(ctx: Context[None]) -> str:
        """Act."""
        nonlocal is_over
        before, is_over = ctx.cancelled, True
        return f"{before} {ctx.cancelled}"

    bench = bench_of(act)
    assert (await bench.tools.run("act", "{}", bench.context(check=check))).text == "False True"


@pytest.mark.requirement("L1")
async def test_a_sync_function_that_outlives_its_time_is_unknown_and_blocks_nobody(
    bench_of: Callable[..., Bench], skip_ahead: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "GRACE_S", 1_000.0)
    release, loop = threading.Event(), asyncio.get_running_loop()

    @tool(effect="write")
    def hang() -> None:
        """Wait."""
        loop.call_soon_threadsafe(skip_ahead, 100.0)
        release.wait()

    bench = bench_of(hang)
    ended = await bench.tools.run("hang", "{}", bench.context(timeout_s=100.0))
    release.set()
    assert ended.status == "unknown"
    assert "may still be running" in ended.text


async def test_more_sync_calls_than_threads_wait_and_are_not_started_in_vain(
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, skip_ahead: Callable[[float], None]
) -> None:
    monkeypatch.setattr(function_module, "MAX_THREADS", 1)
    monkeypatch.setattr(dispatcher, "GRACE_S", 1_000.0)
    release, started, loop = threading.Event(), [], asyncio.get_running_loop()

    @tool(effect="write")
    def hang() -> None:
        """Wait."""
        started.append(1)
        if len(started) == 1:
            loop.call_soon_threadsafe(skip_ahead, 100.0)
        release.wait()

    bench = bench_of(hang)
    first = await bench.tools.run("hang", "{}", bench.context(timeout_s=100.0))
    second = await bench.tools.run("hang", "{}", bench.context(timeout_s=0.1))
    release.set()
    assert (first.status, second.status, len(started)) == ("unknown", "timeout", 1)
    assert (await bench.run("hang")).status == "ok"


async def test_a_call_for_which_no_thread_starts_gives_its_place_back(
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_module, "MAX_THREADS", 1)

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    def full(thread: threading.Thread) -> None:
        if thread.name == "holdfast-tool":
            raise RuntimeError("can't start new thread")
        start(thread)

    bench, start = bench_of(look), threading.Thread.start
    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", full)
        failed = await bench.tools.run("look", "{}", bench.context(timeout_s=2.0))
    assert (failed.status, failed.text) == ("error", "It was not run: no thread could be started.")
    assert (await bench.tools.run("look", "{}", bench.context(timeout_s=2.0))).text == "seen"


async def test_a_function_that_exits_ends_its_call_and_not_the_program(
    bench_of: Callable[..., Bench],
) -> None:
    @tool(effect="exec")
    def leave() -> None:
        """Exit."""
        sys.exit(3)

    result = await bench_of(leave).call("leave")
    assert result.status == "error"
    assert "sys.exit(3)" in result.detail


async def test_a_coroutine_that_raises_what_closes_one_ends_its_call_and_not_the_program(
    bench_of: Callable[..., Bench],
) -> None:
    @tool(effect="read")
    async def closed() -> None:
        """Raise what Python raises in a coroutine that it closes."""
        raise GeneratorExit

    result = await bench_of(closed).call("closed")
    assert result.status == "error"
    assert "GeneratorExit" in result.detail


def test_what_yields_is_refused_when_it_is_made_a_tool_and_a_lambda_needs_a_name() -> None:
    def lines() -> Iterator[str]:
        """Lines."""
        yield "one"

    async def later() -> AsyncIterator[str]:
        """Later."""
        yield "one"

    for function in (lines, later):
        with pytest.raises(TypeError, match="a generator cannot be a tool"):
            tool(effect="read")(function)
    assert tool(name="nothing")(lambda: "").spec.name == "nothing"
    with pytest.raises(UsageError, match="cannot be the name of a tool"):
        make_tools([tool(lambda: "")], secret_in=lambda _: "", own=Own())


class Odd(BaseException):
    """What hardly anything catches."""


@pytest.mark.requirement("C3", "L1")
@pytest.mark.parametrize(
    "raised", [StopIteration(), KeyboardInterrupt(), asyncio.CancelledError(), Odd("odd")]
)
async def test_whatever_a_function_raises_in_its_thread_ends_its_call_and_nothing_else(
    bench_of: Callable[..., Bench], raised: BaseException
) -> None:
    @tool(effect="read")
    def fail() -> None:
        """Fail."""
        raise raised

    async with asyncio.timeout(60):
        result = await bench_of(fail).call("fail")
    assert result.status == "error"
    assert type(raised).__name__ in result.detail


@pytest.mark.requirement("C3", "L1")
async def test_an_async_function_that_exits_ends_its_call_only(bench_of: Callable[..., Bench]) -> None:
    @tool(effect="read")
    async def leave() -> None:
        """Leave."""
        sys.exit(3)

    result = await bench_of(leave).call("leave")
    assert result.status == "error"
    assert "sys.exit(3)" in result.detail


@pytest.mark.requirement("C8")
def test_a_hanging_sync_tool_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, time\n"
        "from holdfast.protocol.ports import CallContext\n"
        "from holdfast.tools.function import tool\n"
        "@tool(effect='exec')\n"
        "def hang() -> None:\n    time.sleep(300)\n"
        "context = CallContext('s', 'c', 'k', '/', 1.0, 9.0, print, lambda: 9**12)\n"
        "print(asyncio.run(hang.run({}, context)).status)\n"
    )
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "unknown\n")


async def test_an_isolated_function_runs_in_a_process_of_its_own(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(isolated_tools.where, isolated_tools.twice)
    told = json.loads((await bench.call("where", count=3)).text)
    assert told.pop("pid") != isolated_tools.os.getpid()
    assert told == {"count": 3, "key": KEY, "workspace": str(bench.workspace)}
    assert "".join(bench.heard) == "working\nheard\n"
    assert (await bench.call("twice", text="ab")).text == "abab"


@pytest.mark.requirement("L1", "C8")
async def test_an_isolated_function_is_killed_at_its_timeout_and_its_death_is_told(
    bench_of: Callable[..., Bench],
) -> None:
    bench = bench_of(isolated_tools.hangs, isolated_tools.breaks)
    ended = await bench.tools.run("hangs", "{}", bench.context(timeout_s=0.8))
    assert ended.status == "timeout"
    assert trees.members({KEY}) == set()
    raised = await bench.call("breaks", how="raises")
    assert (raised.status, raised.text.split(".")[0]) == ("error", "breaks failed with ValueError")
    assert "Traceback" in raised.detail
    assert raised.detail.endswith("ValueError: raises\n")
    assert "exit code 7" in (await bench.call("breaks", how="dies")).text


def test_a_function_that_no_other_process_can_find_cannot_be_isolated() -> None:
    def inner() -> None: ...

    with pytest.raises(TypeError, match="top of a module"):
        tool(effect="exec", isolation="process")(inner)


def test_an_isolated_function_of_the_program_itself_is_found_by_its_file(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\n"
        "from holdfast.protocol.ports import CallContext\n"
        "from holdfast.tools.function import tool\n"
        "@tool(effect='exec', isolation='process')\n"
        "def double(n: int) -> int:\n    return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    context = CallContext('s', 'c', 'k', '/', 20.0, 20.0, print, lambda: 9**12)\n"
        "    print(asyncio.run(double.run({'n': 21}, context)).text)\n"
    )
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("42\n", "")
