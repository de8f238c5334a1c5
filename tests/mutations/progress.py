"""Promises about progress: what counts as evidence, what failed before, what is answered from what is known."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_PROGRESS = "tests/core/test_progress.py"
_FAILED = "tests/core/test_failed_before.py"

PROGRESS = (
    Mutation(
        "a failed call is evidence",
        "core/guard.py",
        "keys = [] if is_error else [_pair(call, result, sign)]",
        "keys = [_pair(call, result, sign)]",
        _PROGRESS,
    ),
    Mutation(
        "a search that finds nothing is a failure",
        "core/guard.py",
        'is_error = result.status != "ok" and not evidence.is_negative',
        'is_error = result.status != "ok"',
        _PROGRESS,
    ),
    Mutation(
        "a file that is written as it was is a change",
        "core/guard.py",
        "changes = [change for change in files.changes if change.before != change.after]",
        "changes = [*files.changes]",
        _FAILED,
    ),
    Mutation(
        "a step of the plan counts before it is done",
        "core/guard.py",
        'for step in plan.steps if step.status == "done"]',
        "for step in plan.steps]",
        _PROGRESS,
    ),
    Mutation(
        "a run ends before the survey of its last turn is in",
        "core/guard.py",
        "return max(state.progress.stall - state.progress.is_open, 0)",
        "return state.progress.stall",
        _PROGRESS,
    ),
    Mutation(
        "a waiting call counts",
        "core/progress.py",
        "counts = not has_news and not progress.has_waited",
        "counts = not has_news",
        _PROGRESS,
    ),
    Mutation(
        "a world that changes does not break a row of repeats",
        "core/evolve_tools.py",
        "repeats = () if state.progress.has_new_files else guard.counted(turn.repeats, calls)",
        "repeats = guard.counted(turn.repeats, calls)",
        _PROGRESS,
    ),
    Mutation(
        "the evidence of a task outlives it",
        "core/evolve_run.py",
        "seen = before.seen if event.is_continuation else ()",
        "seen = before.seen",
        _PROGRESS,
    ),
    Mutation(
        "a fourth attempt starts",
        "core/guard.py",
        "if each.likeness == likeness and each.row >= TIMES:",
        "if each.likeness == likeness and each.row > TIMES:",
        _FAILED,
    ),
    Mutation(
        "a change in between is not noticed",
        "core/progress.py",
        "return replace(failed, workspace=workspace, row=1 if is_of_turn else 0)",
        "return replace(failed, workspace=workspace)",
        _FAILED,
    ),
    Mutation(
        "a call is refused while an edit of the same turn waits",
        "core/tool_calls.py",
        ").is_in_conflict(resources):\n            draft.add(e.ToolCallQueued(call.call_id, call.name, resources))\n",
        ").is_in_conflict(resources) and not _failed_before(draft, call, found):\n"
        "            draft.add(e.ToolCallQueued(call.call_id, call.name, resources))\n",
        _FAILED,
    ),
    Mutation(
        "a touched file is another file",
        "tools/survey.py",
        "return hashlib.blake2b(os.read(fd, FILE_BYTES), digest_size=8).hexdigest()",
        "return times",
        "tests/tools/test_survey.py",
    ),
    Mutation(
        "a page is known by its size and time alone",
        "tools/pages.py",
        "return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns",
        "return facts.st_dev, facts.st_dev, facts.st_size, facts.st_mtime_ns, facts.st_mtime_ns",
        "tests/tools/test_known_pages.py",
    ),
    Mutation(
        "a page that has just changed is remembered",
        "tools/pages.py",
        "if not is_fresh(version[-1], looked_ms) and _version(fd) == version:",
        "if _version(fd) == version:",
        "tests/tools/test_known_pages.py",
    ),
    Mutation(
        "a substitution in a command only looks",
        "tools/sameness.py",
        "if not run or command.unread or _HIDES.search(command.text):",
        "if not run:",
        "tests/tools/test_sameness.py",
    ),
)
