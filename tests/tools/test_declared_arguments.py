"""A tool declares which of its parameters are paths, commands or URLs, and the gates read nothing else as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.policy.protected import Own
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import Allowed, Asked, ParameterKind, Refused, ToolSpec
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import tool
from tests.tools.conftest import Bench

TEXT = {"type": "string"}


class Echo:
    """A tool of somebody else: it says what it was given."""

    def __init__(self, properties: dict[str, Any], kinds: dict[str, ParameterKind], **schema: Any) -> None:
        parameters = {"type": "object", "properties": properties, **schema}
        self.spec = ToolSpec("echo", "Says it.", parameters, effect="write", kinds=kinds)

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        return RawResult("ok", msgspec.json.encode(arguments, order="sorted").decode())

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> None:
        return None


def rule_of(admission: Any) -> tuple[str, str]:
    """The verdict and the rule that brought it."""
    name = {Allowed: "allow", Asked: "ask", Refused: "refuse"}[type(admission)]
    return name, next((d.rule for d in admission.decisions if d.verdict == "deny"), "")


def test_a_tool_that_does_not_say_where_it_comes_from_is_not_one_of_ours() -> None:
    assert ToolSpec("x", "", {}).source == "foreign"


@pytest.mark.parametrize(
    "arguments", [{"path": "../../etc/passwd"}, {"path": ".env"}, {"command": "rm -rf /"}, {"command": 7}]
)
async def test_a_parameter_that_is_only_called_path_or_command_is_not_judged_as_one(
    bench_of: Callable[..., Bench], arguments: dict[str, Any]
) -> None:
    bench = bench_of(Echo({"path": TEXT, "command": {}}, {}))
    assert isinstance(await bench.admit("echo", **arguments), Allowed)
    assert (await bench.call("echo", **arguments)).status == "ok"


@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        ("path", "../x", "workspace"),
        ("path", ".env", "secret-path"),
        ("path", "/proc/self/mem", "hard-floor"),
        ("command", "rm -rf /", "hard-floor"),
        ("command", "cat .netrc", "secret-path"),
        ("url", "file:///etc/shadow", "secret-path"),
        ("url", "FILE:.env", "secret-path"),
        ("url", "file://localhost/%65tc/shadow", "secret-path"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: ["a", v], lambda v: [{"to": v}], lambda v: {v: 1}])
async def test_what_is_declared_is_judged_whoever_made_the_tool_and_however_deep_it_stands(
    bench_of: Callable[..., Bench], kind: ParameterKind, value: str, rule: str, wrap: Callable[[str], Any]
) -> None:
    bench = bench_of(Echo({"where": {}}, {"where": kind}))
    assert rule_of(await bench.admit("echo", where=wrap(value))) == ("refuse", rule)


async def test_an_argument_that_is_left_out_is_judged_by_its_default(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(Echo({"where": {**TEXT, "default": ".env"}}, {"where": "path"}))
    assert rule_of(await bench.admit("echo")) == ("refuse", "secret-path")


async def test_an_ordinary_url_is_not_taken_for_a_path(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(Echo({"where": TEXT}, {"where": "url"}))
    bench.settings = changed(bench.settings, allowed_hosts=("example.org",))
    assert isinstance(await bench.admit("echo", where="https://example.org/.env"), Allowed)


async def test_a_function_declares_its_paths_and_commands_too(bench_of: Callable[..., Bench]) -> None:
    @tool(effect="read")
    def look(
        target: Annotated[str, "path"],
        line: Annotated[str, "command"] = "true",
        also: list[Annotated[str, "path"]] | None = None,
        path: str = "",
    ) -> str:
        """Look."""
        return target

    bench = bench_of(look)
    assert rule_of(await bench.admit("look", target="a", path="../x"))[0] == "allow"
    assert rule_of(await bench.admit("look", target="../x")) == ("refuse", "workspace")
    assert rule_of(await bench.admit("look", target="a", also=["b", ".env"])) == ("refuse", "secret-path")
    assert rule_of(await bench.admit("look", target="a", line="mkfs /dev/sda")) == ("refuse", "hard-floor")


def test_an_annotation_that_is_no_kind_of_argument_is_refused() -> None:
    def look(target: Annotated[str, "pth"]) -> str:
        """Look."""
        return target

    with pytest.raises(TypeError, match="look: target has the annotation 'pth': write 'path', or describe"):
        tool(look)


def test_a_function_says_how_far_its_result_may_be_trusted() -> None:
    def plain() -> str:
        """Answer."""
        return ""

    def marked() -> Annotated[str, "untrusted"]:
        """Answer."""
        return ""

    def bold() -> Annotated[str, "user"]:
        """Answer."""
        return ""

    def mail() -> list[Annotated[str, "data"]]:
        """Answer."""
        return []

    assert [tool(plain).spec.trust, tool(marked).spec.trust] == ["data", "untrusted"]
    assert [tool(effect="network")(f).spec.trust for f in (plain, mail)] == ["untrusted", "data"]
    with pytest.raises(
        TypeError, match="bold: its result has the annotation 'user', which is not one of data, untrusted"
    ):
        tool(bold)
    assert ToolSpec("x", "", {}).trust == "untrusted"


async def test_a_declared_timeout_is_that_of_the_call(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(Echo({"patience": {"type": "number", "default": 7}}, {"patience": "timeout"}))
    assert (await bench.admit("echo", patience=3)).timeout_s == 3
    assert (await bench.admit("echo")).timeout_s == 7
    assert (await bench.admit("shell", command="true")).timeout_s == 120
    assert (await bench.admit("shell", command="true", timeout_s=2)).timeout_s == 2


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    "schema", [{"additionalProperties": True}, {"additionalProperties": {"type": "string"}}]
)
async def test_a_tool_with_an_open_schema_runs(bench_of: Callable[..., Bench], schema: Any) -> None:
    bench = bench_of(Echo({}, {"to": "path"}, **schema))
    assert (await bench.call("echo", anything="goes")).text == '{"anything":"goes"}'
    assert rule_of(await bench.admit("echo", to=".env")) == ("refuse", "secret-path")


async def test_a_tool_whose_schema_says_nothing_at_all_runs(bench_of: Callable[..., Bench]) -> None:
    bare = Echo({}, {})
    bare.spec = msgspec.structs.replace(bare.spec, parameters={"additionalProperties": True})
    assert (await bench_of(bare).call("echo", x=1)).text == '{"x":1}'


class Corner(msgspec.Struct):
    x: int


@pytest.mark.requirement("C3")
async def test_a_function_with_keyword_arguments_takes_any_and_gets_them_as_annotated(
    bench_of: Callable[..., Bench],
) -> None:
    @tool(effect="read")
    def count(first: int, **rest: Corner) -> str:
        """Count."""
        return f"{first} {sorted((name, corner.x) for name, corner in rest.items())}"

    @tool(effect="read")
    async def say(**rest) -> str:  # type: ignore[no-untyped-def]  # a parameter for all others needs no type
        """Say."""
        return str(rest)

    bench = bench_of(count, say)
    assert count.spec.parameters["additionalProperties"] == {"$ref": "#/$defs/Corner"}
    assert (await bench.call("count", first=1, b={"x": 2}, a={"x": 3})).text == "1 [('a', 3), ('b', 2)]"
    assert (await bench.call("say", self="me", x=[1])).text == "{'self': 'me', 'x': [1]}"
    assert isinstance(await bench.admit("count", first=1, b={"x": "two"}), Refused)
    assert isinstance(await bench.admit("count", b={"x": 2}), Refused)


@pytest.mark.parametrize("kinds", [{"pth": "path"}, {"where": "folder"}])
def test_a_declaration_that_cannot_be_meant_is_refused_at_the_start(kinds: Any) -> None:
    with pytest.raises(UsageError, match=r"echo.*kinds"):
        make_tools(
            [Echo({"where": TEXT}, kinds, additionalProperties=False)], secret_in=lambda _: "", own=Own()
        )
