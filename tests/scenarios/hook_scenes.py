"""Scenarios with hooks of every kind."""

from __future__ import annotations

from typing import Any

from holdfast.app import _OWN_FACTORIES
from holdfast.core.hooking import is_asked
from holdfast.extensions.factories import Factories
from holdfast.extensions.hooks import ConfiguredHooks
from holdfast.protocol.commands import Resolve
from holdfast.protocol.hooks import HOOK_EVENTS, Hook, HookSource, digest_of
from holdfast.redact import make_redactor
from holdfast.testing.scenarios import Scenario, Step
from tests.scenarios.scenes import DONE, call, calls, tools_of
from tests.scenarios.scenes import _with as with_steps

FUNCTIONS = (
    "note", "deny", "change", "ask", "hang", "die", "hang_always", "refuse", "refuse_later", "doubt", "fail",
    "water", "leak",
)  # fmt: skip
TARGETS = {name: f"tests.scenarios.hook_functions:{name}" for name in FUNCTIONS}
TOLD = tuple(event for event in HOOK_EVENTS if event != "before_tool" and not is_asked(event))


def source(name: str, *on: Any, **changes: Any) -> HookSource:
    """A hook of `hook_functions`."""
    return HookSource(Hook(name, on or ("before_tool",), digest=digest_of((), name), **changes), python=name)


def scene(name: str, lines: list[dict[str, Any]], *sources: HookSource, **more: Any) -> Scenario:
    """A scenario with these hooks."""
    factories = Factories({**_OWN_FACTORIES, "hooks": {**_OWN_FACTORIES["hooks"], **TARGETS}}, [])

    def hooks() -> ConfiguredHooks:
        return ConfiguredHooks(sources, make_redactor(), {}, factories)

    settings = {**more.pop("settings", {}), "hooks": tuple(each.hook for each in sources)}
    return Scenario(name, lines, tools_of, hooks=hooks, settings=settings, **more)


ALL_KINDS = scene(
    "hooks of every kind",
    [
        calls(call("note", text="forbidden"), call("charge", amount=5), call("note", text="doubtful")),
        calls(call("note", text="endless"), call("note", text="deadly"), call("look", name="x")),
        DONE,
    ],
    source("deny"),
    source("change", tools=("charge",)),
    source("ask"),
    source("hang", timeout_s=2.0),
    source("die"),
    steps=with_steps(Step(Resolve("", "approve"))),
)
ALL_EVENTS = scene(
    "hooks hear of everything",
    [calls(call("look", name="x"), call("note", text="n")), calls(call("ask_user", question="Which?")), DONE],
    source("note", *TOLD),
)
ALL_ASKED = scene(
    "hooks are asked before everything",
    [calls(call("look", name="x")), calls(call("note", text="n")), DONE],
    source("note", "run_start", "before_model", "before_compaction", "before_tool"),
    source("fail", "run_start", "before_model", on_failure="allow"),
)
REFUSED_RUN = scene("a hook refuses the run", [DONE], source("refuse", "run_start"))
REFUSED_CALL = scene(
    "a hook refuses a model call",
    [calls(call("look", name="x")), DONE],
    source("refuse_later", "before_model"),
)
SCENES = (ALL_KINDS, ALL_EVENTS, ALL_ASKED, REFUSED_RUN, REFUSED_CALL)
ENDS = {
    REFUSED_RUN.name: [("failed", "hook:refuse")],
    REFUSED_CALL.name: [("failed", "hook:refuse_later")],
}
