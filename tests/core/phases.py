"""One session in each phase, one event of each type, and the tables that ARCHITECTURE.md shows.

python -m tests.core.phases          writes the tables into ARCHITECTURE.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from holdfast.core.causes import Cause, Commanded, Due, Finding, Outcome
from holdfast.core.decide import decide
from holdfast.core.rules import RULES
from holdfast.core.state import Phase, Waiting, action_key, next_key, phase
from holdfast.core.wanted import Wait, wanted
from holdfast.protocol import events as e
from holdfast.protocol.answers import Answer
from holdfast.protocol.commands import Command, Compact, Continue, Pause, Resolve, Restore, Send, Stop, owner
from holdfast.protocol.evidence import Evidence, Likeness
from holdfast.protocol.failures import Failure
from holdfast.protocol.grants import Grant
from holdfast.protocol.messages import Attachment, ModelReply, Text, ToolCall, Usage, Verdict
from holdfast.protocol.notify import Notified
from holdfast.protocol.plan import Plan, Step
from holdfast.protocol.prompt import Section
from holdfast.protocol.reflection import Reflection
from holdfast.protocol.request import Enclosed, Fresh
from holdfast.protocol.settings import groups_of, ref_of
from holdfast.protocol.tools import (
    Allowed,
    CallResult,
    FileChange,
    FileRestore,
    Files,
    KeptFile,
    Offer,
    Resource,
)
from tests.core.stories import (
    SESSION,
    SETTINGS,
    Story,
    acting,
    asking,
    calling,
    opened,
    proposing,
    request,
    settings,
)  # fmt: skip

PAGE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"


def _idle() -> Story:
    story = calling()
    story.failed("provider_fatal")
    return story


def _backing_off() -> Story:
    story = calling()
    story.failed("provider_transient")
    return story


def _paused() -> Story:
    story = proposing()
    story.command(Pause())
    return story


def _stopping() -> Story:
    story = acting()
    story.command(Stop())
    return story


IN_PHASE: dict[Phase, Callable[[], Story]] = {
    "idle": _idle,
    "preparing": opened,
    "calling": calling,
    "backing_off": _backing_off,
    "admitting": proposing,
    "acting": acting,
    "waiting": asking,
    "paused": _paused,
    "stopping": _stopping,
}
"""How a session comes into each phase."""

assert set(IN_PHASE) == set(get_args(Phase))

SHOWN = Attachment("tool", "shoot t1.c1", "image/png", 9, "a" * 64, weight_bytes=16_000)
FILE = FileChange("a", "b", "c", 0o644, 1, is_large=True)
KEPT = KeptFile("c", "it has changed since")
_USED = {"usage": Usage(1, 1), "cost_microusd": 1}
EXAMPLES: dict[type[e.Event], e.Event] = {
    type(event): event
    for event in (
        e.SessionOpened("other", "cli:demo", "cli:ann"),
        e.SessionForked("branch", SESSION, 1),
        e.SessionRenamed("cli:other", "branch"),
        e.SessionImported(),
        e.Attached(9, "host:1"),
        e.MessageReceived(
            "words",
            "cli:ann",
            ("speak",),
            (Attachment("file", "a.png", "image/png", 9, "b", 16_000), Attachment("stdin", "", "text/plain", 3, "c")),
            "[2026-11-21 23:18:00 UTC] ",
        ),
        e.SettingsStored(groups_of(settings(turns=1))),
        e.RunStarted(9, ref_of(SETTINGS), is_continuation=True),
        e.SettingsChanged(ref_of(settings(turns=1))),
        e.RunPaused("cli:ann", "Where is it?"),
        e.RunResumed("cli:ann"),
        e.RunLanding("turns", "The limit is reached."),
        e.RunStopping("limit", "wall", "Late.", 1),
        e.RunStopped(1, "done", "answer"),
        e.NoteAdded("cost", "80 %"),
        e.Reflected("s1", Reflection("slow", "ask", "It is not said where.", "Where is it?")),
        e.PromptBuilt("the first prompt", (Section("identity", "holdfast", "s", 9, "always", "data"),), "p", "t"),
        e.ModelCallStarted(
            "m9", epoch=1, turn=9, attempt=1, model="openai:m", is_last_pass=True,
            request=request(rest=(Fresh("u", 2, ('{"role":"user","text":"', 2, Enclosed("b", 9), '"}')),)),
        ),
        e.ModelCallUnready("m9", Failure("provider_unready", "No key is set."), 7),
        e.CircuitChanged("openai:m#3f9a1c", "open", "It is down."),
        e.ModelCallUnaffordable("m9", "cost", "Too much.", 1_000),
        e.Responded(
            "m1",
            (Text("x"), ToolCall("r", "shell", "{}", "t1.c1")),
            finish="stop",
            verdict=Verdict("s", "wrong"),
            workspace="5eed",
            **_USED,
        ),
        e.ModelCallFailed("m1", Failure("context_overflow", "Too long.", tokens=8_192), 7, **_USED),
        e.ModelCallCut("m1", "half", **_USED),
        e.ModelCallAbandoned("m1"),
        e.ContextCompacted(
            "full", ((1, 3), (5, 5)), 6, (e.ViewPart("words", "Long.", 2), e.ViewPart("summary", "Done: a.")), "data",
            messages_before=9, messages_after=3, size_bytes_before=900, size_bytes_after=90, kept_share=0.5,
            summary_by="openai:m", summary_key="s1", cost_microusd=7,
        ),
        e.SummaryDiscarded("s1", "it is empty"),
        e.CompactionAsked("cli:ann"),
        e.ContextRestored("cli:ann"),
        e.SideCallEnded(
            "s1", "reflection", "failed", "so", 1, True, Usage(1, 1), 1, ("input",), "other", "m", "ref", 5, 2,
            Failure("rate_limited", "Later."), 7,
        ),
        e.ToolCallTold("t1.c1", "update_plan", ()),
        e.ToolCallQueued("t1.c1", "shell", (Resource("write", "/w/a"),)),
        e.ToolCallRefused("t1.c1", "shell", Failure("policy_denied", "No.")),
        e.ToolCallStarted(
            "t1.c1", "shell", 1, 1, "exec", "probe", 9.0, '{"a":1}', Files((FILE,)),
            likeness=Likeness("11", "22", only_looks=True), resources=(Resource("read", "/w/a"),),
        ),
        e.ToolCallFinished(
            "t1.c1",
            CallResult("ok", "x", attachments=(SHOWN,), evidence=Evidence("33", "1 passed", is_negative=True)),
        ),
        e.ToolCallAbandoned("t1.c1", "unknown"),
        e.PlanChanged("t1.c1", Plan((Step("See.", "done", "1", "a"), Step("Mend.", id="2")), "Green.", 2), "So"),
        e.AnswerGiven("t1.c1", Answer("So.", 0.5, ("a",), ("b",)), Verdict("s", "wrong"), is_doubted=True),
        e.ApprovalRequested(f"{SESSION}-1", "t1.c1", "shell", "{}", "s", 9),
        e.ApprovalResolved(f"{SESSION}-1", "approve", "cli:ann", "so"),
        e.ApprovalConsumed(f"{SESSION}-1"),
        e.GrantMade(f"{SESSION}-1", Grant(f"{SESSION}-g1", "shell", Offer("shell(make)"), 9, 5), "cli:ann"),
        e.NotificationDue("n1", "waiting", "waiting", "approval", "Wait.", ("a",), ("holdfast approve a",)),
        e.NotificationEnded("n1", Notified("sent")),
        e.GrantRevoked(f"{SESSION}-g1", "cli:ann"),
        e.HooksDue("before_compaction", "m9", "full"),
        e.HookEnded("guard", "before_model", "m9", "denied", "Not today.", 9),
        e.FilesRestoring("undo", "cli:ann", (2,), (FileRestore("/w", "a", "b", "", new_folders=1),), (KEPT,)),
        e.FilesRestored("undo", ("a",), (KEPT,)),
    )
}  # fmt: skip
"""An event of each type, with what matters to the fold set."""

assert set(EXAMPLES) == set(e.EVENT_TYPES)


def _causes(story: Story) -> dict[str, Cause]:
    """One cause of each kind, as it would have to look to mean something now."""
    state = story.state
    call = state.turn.calls[0] if state.turn.calls else None
    stage = call.stage if call is not None else None
    approval = stage.approval_id if isinstance(stage, Waiting) else ""
    waits = [action for action in wanted(state) if isinstance(action, Wait)]
    for wait in waits:
        story.until(wait)
    found: dict[str, Cause] = {
        name: Commanded(Command("c", SESSION, owner("cli:ann"), body), story.epoch)
        for name, body in {
            "Send": Send("x", settings(turns=7)), "Continue": Continue(), "Pause": Pause(), "Stop": Stop(),
            "Resolve": Resolve(approval, "approve"), "Restore": Restore("undo", (2,), ()), "Compact": Compact(),
        }.items()
    }  # fmt: skip
    key = action_key(call) if call is not None else ""
    found["Finding(request)"] = Finding(story.step(next_key(state)), request())
    found["Finding(admission)"] = Finding(story.step(key), Allowed(arguments="{}"))
    model_key = state.models.open.key if state.models.open is not None else ""
    found["Outcome(model)"] = Outcome(model_key, ModelReply((Text("x"),), Usage(1, 1)))
    found["Outcome(tool)"] = Outcome(key, CallResult("ok", "x"))
    found |= {f"Due({wait.key.partition(' ')[0]})": Due(wait.key) for wait in waits}
    return found


def _row(name: Phase) -> str:
    story = IN_PHASE[name]()
    assert phase(story.state) == name
    shown = dict.fromkeys(
        f"Wait({action.key.partition(' ')[0]})" if isinstance(action, Wait) else type(action).__name__
        for action in wanted(story.state)
    )
    heard = [
        label
        for label, cause in _causes(story).items()
        if decide(story.state, cause, story.now_ms, story.awake_ms)
    ]
    return f"| {name} | {', '.join(shown) or '-'} | {', '.join(heard)} |\n"


def phase_table() -> str:
    """What is wanted in each phase, and what means something there, in Markdown."""
    head = "| phase | wanted | causes that mean something |\n|---|---|---|\n"
    return head + "".join(_row(name) for name in IN_PHASE)


def rule_table() -> str:
    """What follows from the state alone, in Markdown."""
    rows = (f"| {rule.name} | {rule.when} | {rule.says} |\n" for rule in RULES)
    return "| rule | when | what follows |\n|---|---|---|\n" + "".join(rows)


TABLES = {"phases": phase_table, "rules": rule_table}


def with_tables(page: str) -> str:
    """The page with its tables as the code makes them."""
    for name, table in TABLES.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert begin, f"the page has no place for {name}"
        assert end, f"the place for {name} has no end"
        page = f"{before}{begin}{table()}{end}{after}"
    return page


def main() -> int:
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
