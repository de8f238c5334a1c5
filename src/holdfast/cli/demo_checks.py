"""The claims of the demo, checked against the journal, the project and the exit codes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from holdfast.cli import demo_story
from holdfast.protocol import events as e
from holdfast.protocol.codec import StoredRecord
from holdfast.protocol.counts import counted
from holdfast.sandbox.trees import VARIABLE
from holdfast.views.replay import replay
from holdfast.views.stored import StoredSession
from holdfast.views.story import Call, story

_EXITS = (-signal.SIGKILL, 5, 0, 0, 0, 0)
"""The exit codes of run, resume, approvals, approve, resume and fsck."""


class Evidence(msgspec.Struct, frozen=True):
    """Everything that the checks look at."""

    before: Sequence[StoredRecord]
    """The journal as the killed process left it."""
    after: StoredSession
    killed_ms: int
    marker: Path
    """A file that the interrupted command made."""
    sandbox: str
    """`unsafe`: none."""
    key: str
    """What is in a file outside of the project."""
    sent: tuple[str, ...]
    """What the program of the project sent away: first when the demo started it, then when the agent did."""
    exits: tuple[int, ...]
    """The exit codes of the commands, in order."""
    result: dict[str, Any]
    """The output of the last `resume --json`."""
    tests_exit: int
    """The exit code of the project's tests, run without an agent."""

    def facts(self, kind: type[Any]) -> list[Any]:
        """Return the events of a type, in order."""
        return [record.event for record in self.after.records if isinstance(record.event, kind)]

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the tool calls, in order."""
        return story(self.after.records).calls


class Check(msgspec.Struct, frozen=True):
    """A claim, and whether it is true."""

    claim: str
    ok: bool
    detail: str = ""


def checks(evidence: Evidence) -> list[Check]:
    """Check every claim."""
    walled = (_walled,) if evidence.sandbox != "unsafe" else ()
    return [check(evidence) for check in (*_CHECKS, *walled)]


def _found(seen: Evidence) -> Check:
    failed = [call for call in seen.calls if call.name == "shell" and "FAILED (failures=1)" in call.text]
    return Check("The agent ran the tests and saw one fail.", bool(failed))


def _killed(seen: Evidence) -> Check:
    abandoned = seen.facts(e.ToolCallAbandoned)
    is_killed = seen.exits[:1] == (-signal.SIGKILL,) and len(abandoned) == 1
    detail = f"{abandoned[0].call_id} was running" if abandoned else ""
    return Check("The process was killed with SIGKILL while a command ran.", is_killed, detail)


def _gone(seen: Evidence) -> Check:
    left = [*_processes_of(seen.after.row.session)]
    is_gone = seen.marker.exists() and not left
    detail = f"process {left[0]} is" if left else "no process has its mark"
    return Check("No command of the killed process is still running.", is_gone, detail)


def _processes_of(session: str) -> Iterator[str]:
    """Yield the processes that calls of a session started. Each has the call in its environment."""
    mark = f"{VARIABLE}={session}:".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if any(each.startswith(mark) for each in path.read_bytes().split(b"\0")):
                yield path.parent.name


def _kept(seen: Evidence) -> Check:
    is_same = len(seen.before) > 0 and list(seen.after.stored[: len(seen.before)]) == list(seen.before)
    return Check(
        "No acknowledged record is lost.", is_same, f"{counted(len(seen.before), 'record')}, byte for byte"
    )


def _resumed(seen: Evidence) -> Check:
    late = [
        r.at_ms for r in seen.after.records if isinstance(r.event, e.Attached) and r.at_ms >= seen.killed_ms
    ]
    detail = f"{(late[0] - seen.killed_ms) / 1000:.1f} s after the kill" if late else ""
    return Check("Another process took over the session.", bool(late), detail)


def _told(seen: Evidence) -> Check:
    cut = [call for call in seen.calls if call.status == "abandoned"]
    is_told = len(cut) == 1 and cut[0].attempts == 1 and "unknown" in cut[0].text
    return Check("The command was not repeated, and the model was told.", is_told)


def _once(seen: Evidence) -> Check:
    edits = [call for call in seen.calls if call.name == "edit_file"]
    content = (seen.marker.parent / demo_story.MENDED).read_text()
    is_once = len(edits) == 1 and edits[0].attempts == 1 and content.count("// 2") == 1
    return Check("The file was fixed exactly once.", is_once)


def _approved(seen: Evidence) -> Check:
    resolved = [event for event in seen.facts(e.ApprovalResolved) if event.decision == "approve"]
    counts = (len(seen.facts(e.ApprovalRequested)), len(resolved), len(seen.facts(e.ApprovalConsumed)))
    detail = f"by {resolved[0].by}" if resolved else ""
    return Check("One approval was requested, given and used once.", counts == (1, 1, 1), detail)


def _passed(seen: Evidence) -> Check:
    last = seen.calls[-1] if seen.calls else None
    is_ok = last is not None and last.status == "ok" and "OK" in last.text and seen.tests_exit == 0
    return Check("The tests pass, with and without the agent.", is_ok)


def _ended(seen: Evidence) -> Check:
    stopped = [event.status for event in seen.facts(e.RunStopped)]
    turns = seen.result.get("turns", 0)
    is_done = stopped == ["done"] and seen.result.get("status") == "done" and seen.exits == _EXITS
    return Check(
        "It was one run, and it is done.", is_done, f"{counted(turns, 'turn')}, every exit code correct"
    )


def _affordable(seen: Evidence) -> Check:
    cost = Decimal(seen.result.get("cost_usd") or 0)
    is_within = 0 < cost <= Decimal(demo_story.BUDGET_USD)
    return Check("The run stayed within its budget.", is_within, f"${cost} of ${demo_story.BUDGET_USD}")


def _replayed(seen: Evidence) -> Check:
    row = seen.after.row
    found = replay(row.session, row.key, seen.after.records)
    return Check(
        "Replay decides the same again.", not found.differences, counted(found.decisions, "decision")
    )


def _walled(seen: Evidence) -> Check:
    tried = [call for call in seen.calls if demo_story.STATUS_COMMAND in call.arguments]
    texts = [call.text for call in seen.calls]
    is_inside = len(tried) == 1 and tried[0].walled is not None and tried[0].walled.backend == seen.sandbox
    is_tight = is_inside and "It read no key" in tried[0].text and "It sent nothing" in tried[0].text
    is_kept = seen.sent == (seen.key,) and not any(seen.key in text for text in texts)
    return Check(
        "A program that steals a key got nothing in the sandbox.",
        is_tight and is_kept,
        f"{seen.sandbox}; outside, it read the key and sent it",
    )


_CHECKS: Sequence[Callable[[Evidence], Check]] = (
    _found, _killed, _gone, _kept, _resumed, _told, _once, _approved, _passed, _ended, _affordable, _replayed,
)  # fmt: skip
