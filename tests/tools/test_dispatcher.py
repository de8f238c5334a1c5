"""Every call passes the gates before anything happens, and everything it does comes out as a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import StorageError, UsageError
from holdfast.policy.protected import Own
from holdfast.protocol.failures import Failure
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, Medium, RawResult, Tools
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Allowed, Asked, Decision, Expectation, Refused, ToolSpec
from holdfast.protocol.trust import Trust
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import tool
from tests.tools.conftest import Bench


def refusal(admission: Any) -> Failure:
    assert isinstance(admission, Refused)
    return admission.failure


def test_a_dispatcher_is_what_the_engine_asks_for(bench: Bench) -> None:
    tools: Tools = bench.tools
    names = [spec.name for spec in tools.specs(bench.settings)]
    assert names == [
        "read_file", "write_file", "edit_file", "apply_patch", "list_dir", "glob", "grep", "shell",
        "process_output", "process_stop", "ask_user", "update_plan", "read_output", "recall_history",
    ]  # fmt: skip


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("readfile", "Did you mean read_file?"),
        ("READ_FILE", "Did you mean read_file?"),
        ("bash", "The tools are: read_file, write_file,"),
    ],
)
async def test_an_unknown_tool_is_answered_with_the_nearest_name(bench: Bench, name: str, near: str) -> None:
    failure = refusal(await bench.admit(name))
    assert failure.code == "unknown_tool"
    assert near in failure.message


@pytest.mark.requirement("C3")
async def test_each_class_of_refusal_has_its_own_code_and_says_what_to_do(bench: Bench) -> None:
    assert refusal(await bench.admit_text("read_file", "{")).code == "invalid_json"
    assert refusal(await bench.admit("read_file", pth="a")).code == "tool_validation"
    denied = refusal(await bench.admit("read_file", path=".env"))
    assert denied.code == "policy_denied"
    assert "secret" in denied.message


@pytest.mark.requirement("C3")
async def test_what_passes_is_the_canonical_form_and_what_was_not_admitted_never_ran(bench: Bench) -> None:
    admission = await bench.admit_text("write_file", '{ "path":"a", "content" : "\\u0078" }')
    assert admission.arguments == '{"content":"x","path":"a"}'
    assert admission.decisions == (Decision(by="policy", verdict="allow", rule="autonomy:full"),)
    assert list(bench.workspace.iterdir()) == []


@pytest.mark.requirement("C12")
async def test_supervised_asks_for_a_command_and_a_persons_yes_counts_but_not_against_a_denial(
    bench: Bench,
) -> None:
    bench.settings = changed(bench.settings, autonomy="supervised")
    asked = await bench.admit("shell", command="make")
    assert isinstance(asked, Asked)
    assert asked.decisions[-1].rule == "autonomy:supervised"
    approved = await bench.admit("shell", is_approved=True, command="make")
    assert isinstance(approved, Allowed)
    assert approved.decisions[-1] == Decision(by="approval", verdict="allow")
    assert approved.arguments == asked.arguments
    assert refusal(await bench.admit("shell", is_approved=True, command="rm -rf /")).code == "policy_denied"
    assert isinstance(await bench.admit("write_file", path="a", content=""), Allowed)


@pytest.mark.requirement("C12")
async def test_read_only_refuses_writes_and_commands(bench: Bench) -> None:
    bench.settings = changed(bench.settings, autonomy="read-only")
    assert refusal(await bench.admit("write_file", path="a", content="")).code == "policy_denied"
    assert refusal(await bench.admit("shell", is_approved=True, command="ls")).code == "policy_denied"
    assert isinstance(await bench.admit("list_dir"), Allowed)


async def test_a_tool_that_the_run_may_not_use_is_neither_offered_nor_admitted(bench: Bench) -> None:
    bench.settings = changed(bench.settings, allow_tools=("*_file",), deny_tools=("write_*",))
    assert [spec.name for spec in bench.tools.specs(bench.settings)] == ["read_file", "edit_file"]
    assert refusal(await bench.admit("shell", command="ls")).code == "policy_denied"
    assert refusal(await bench.admit("write_file", path="a", content="")).code == "policy_denied"


@pytest.mark.parametrize("command", ["echo hunter2-hunter2", 'echo "hunter2-hunter2"\n'])
async def test_arguments_that_hold_a_known_secret_are_refused(bench: Bench, command: str) -> None:
    failure = refusal(await bench.admit("shell", command=command))
    assert failure.code == "policy_denied"
    assert "the secret HUNTER" in failure.message, "it says what to refer to"
    assert "hunter2" not in failure.message


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("secret", ['pass"word-in-quotes', "first line\nsecond line"])
async def test_an_escape_in_the_arguments_hides_no_known_secret(tmp_path: Path, secret: str) -> None:
    tools = make_tools(secret_in=lambda text: "HUNTER" if secret in text else "", own=Own())
    failure = refusal(await Bench(tmp_path, tools).admit("shell", command=f"echo {secret}"))
    assert failure.code == "policy_denied"
    assert "the secret HUNTER" in failure.message
    await tools.aclose()


async def test_a_question_travels_to_a_person_under_every_autonomy(bench: Bench) -> None:
    for autonomy in ("read-only", "supervised", "full"):
        bench.settings = changed(bench.settings, autonomy=autonomy)
        asked = await bench.admit("ask_user", question="Which one?", options=["a", "b"])
        assert isinstance(asked, Asked)
        assert (asked.question, asked.options) == ("Which one?", ("a", "b"))


@tool(effect="read")
async def raises_much() -> str:
    """Fails deep inside."""

    def deep(left: int) -> None:
        if left == 0:
            raise ValueError("x" * 10_000)
        deep(left - 1)

    deep(200)
    return ""


@pytest.mark.requirement("L1", "L7", "A6")
async def test_a_tool_that_raises_a_ten_kilobyte_trace_gives_a_short_text_and_the_end_of_the_trace(
    bench_of: Callable[..., Bench],
) -> None:
    result = await bench_of(raises_much).call("raises_much")
    assert result.status == "error"
    assert result.text == "raises_much failed with ValueError. This is a bug of the tool, not of the call."
    assert result.detail.endswith("xxx\n")
    assert len(result.detail) < 20_000


@tool(effect="read")
async def loses_its_own_home() -> str:
    """Runs an agent of its own, whose disk is full."""
    raise StorageError("no space left")


@pytest.mark.requirement("L1", "L7")
async def test_only_a_tool_of_ours_says_that_this_home_failed(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(loses_its_own_home)
    assert (await bench.call("loses_its_own_home")).status == "error"


@tool(effect="read", timeout_s=0.2)
async def never_ends() -> str:
    """Sleeps."""
    await asyncio.Event().wait()
    return ""


@tool(effect="read")
async def has_its_own_timeout() -> str:
    """Gives up by itself."""
    async with asyncio.timeout(0):
        await asyncio.Event().wait()
    return ""


@pytest.mark.requirement("L1", "A6")
async def test_a_timeout_of_the_call_is_told_apart_from_one_inside_the_tool(
    bench_of: Callable[..., Bench],
) -> None:
    bench = bench_of(never_ends, has_its_own_timeout)
    assert (await bench.admit("never_ends")).timeout_s == 0.2
    for changes in ({"timeout_s": 0.1}, {"idle_s": 0.1}):
        ended = await bench.tools.run("never_ends", "{}", bench.context(**changes))
        assert ended.status == "timeout"
        assert "0.1 s" in ended.text
    assert (await bench.call("has_its_own_timeout")).status == "error"


class Stubborn:
    """A tool that does not watch its own time."""

    def __init__(self) -> None:
        self.spec = msgspec.structs.replace(never_ends.spec, name="stubborn")

    async def run(self, arguments: dict[str, Any], context: Any) -> Any:
        await asyncio.Event().wait()

    async def plan(self, arguments: dict[str, Any], context: Any) -> None:
        raise RuntimeError("no plan")


@pytest.mark.requirement("L1")
@pytest.mark.parametrize("keeps_time", [True, False])
async def test_a_tool_that_ignores_its_time_is_cancelled_by_the_backstop(
    bench_of: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, keeps_time: bool
) -> None:
    """One that said it would keep it, a grace later; any other has none."""
    monkeypatch.setattr("holdfast.tools.dispatcher.GRACE_S", 0.1 if keeps_time else 60.0)
    stubborn = Stubborn()
    stubborn.spec = msgspec.structs.replace(stubborn.spec, keeps_time=keeps_time)
    bench = bench_of(stubborn)
    assert isinstance(await bench.admit("stubborn"), Allowed)
    ended = await bench.tools.run("stubborn", "{}", bench.context(timeout_s=0.1))
    assert ended.status == "timeout"


@pytest.mark.requirement("L2-06")
async def test_a_cancelled_call_is_cancelled_and_not_made_a_result(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(never_ends)
    call = asyncio.create_task(bench.run("never_ends"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_two_tools_of_one_name_or_an_impossible_name_are_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match="two tools"):
        make_tools([never_ends, never_ends], secret_in=lambda _: "", own=Own())
    bad = Stubborn()
    bad.spec = msgspec.structs.replace(bad.spec, name="no blanks")
    with pytest.raises(UsageError, match="cannot be the name"):
        make_tools([bad], secret_in=lambda _: "", own=Own())


async def test_a_spec_that_its_tool_changes_later_stays_as_it_was_registered(
    bench_of: Callable[..., Bench],
) -> None:
    shifty = Stubborn()
    bench = bench_of(shifty)
    before = msgspec.json.encode(bench.tools.specs(bench.settings))
    shifty.spec.parameters["properties"]["path"] = {"type": "string"}
    shifty.spec = msgspec.structs.replace(shifty.spec, effect="read", description="harmless")
    assert msgspec.json.encode(bench.tools.specs(bench.settings)) == before


@pytest.mark.requirement("C14")
async def test_a_result_is_as_trusted_as_its_tool_declares_and_may_be_less_and_never_more(
    bench_of: Callable[..., Bench],
) -> None:
    class Says:
        def __init__(self, name: str, trust: Trust, of_result: Trust | None) -> None:
            self.spec = ToolSpec(name, "", {"type": "object"}, effect="read", trust=trust)
            self._of_result = of_result

        async def run(self, arguments: dict[str, Any], context: Any) -> RawResult:
            return RawResult("ok", "x", trust=self._of_result)

        async def plan(self, arguments: dict[str, Any], context: Any) -> None:
            return None

    told = [("data", None), ("data", "untrusted"), ("untrusted", "user"), ("untrusted", None)]
    bench = bench_of(*(Says(f"t{number}", *each) for number, each in enumerate(told)))  # type: ignore[arg-type]
    found = [(await bench.run(f"t{number}")).trust for number in range(len(told))]
    assert found == ["data", "untrusted", "untrusted", "untrusted"]
    assert (await bench.run("list_dir")).trust == "data"
    assert {spec.name: spec.trust for spec in bench.tools.specs(bench.settings)}["ask_user"] == "user"


class Painter:
    """A tool of somebody else that says wrongly what it returns."""

    spec = ToolSpec("paint", "", {"type": "object", "properties": {}}, effect="read")

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        return RawResult("ok", "[an image]", media=(Medium("image/png", b"MZ"),))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> None:
        return None

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        return Probed("unknown")


async def test_media_that_are_not_what_a_tool_says_are_an_error(bench_of: Callable[..., Bench]) -> None:
    result = await bench_of(Painter()).call("paint")
    assert (result.status, result.media) == ("error", ())
    assert "cannot be shown" in result.text
