"""Recognises a lack of progress: turns that bring nothing new, calls that repeat, calls that fail again and again.

A turn makes progress with evidence: a successful call with a result that was not seen before, a state of the
workspace or of a file that was not there before, other test counts, a step of the plan done, words of a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.evidence import digest_of
from holdfast.core.progress import FAILURES, TIMES, Failed, Progress, changed, with_evidence, with_written
from holdfast.core.state import Call, Done, Started, State, ToolAttempt
from holdfast.protocol.plan import Plan
from holdfast.protocol.tools import KNOWN, CallResult, Files
from holdfast.protocol.untrusted import decode_untrusted

_encode = msgspec.json.Encoder(order="sorted").encode
Repeats = tuple[tuple[str, int], ...]

SAID_CHARS = 200
STALL_NOTE = (
    "The last {turns} turns brought nothing new: no result that you had not seen, no change of the workspace. Say "
    "what you are missing. Then try another way, or give the answer that you have."
)
STALLED = (
    "{turns} turns in a row brought nothing new: no new result, no change of the workspace, no step done."
)
FAILED_BEFORE = (
    "This call was refused: it failed {times} times in a row with the same error, the last time as {call_id}, and "
    "nothing has changed in the workspace since. The error was: {said} Change something first, or try another way."
)


# --- exact repeats ------------------------------------------------------------------------------


def signature(call: Call, result: str) -> str:
    """Return the signature of a call. Two calls with the same name, arguments and whole result have the same one."""
    told = f"{call.name}\0{_canonical(call.arguments)}\0{result}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(told).hexdigest()[:32]


def _canonical(arguments: str) -> str:
    """Return one text for all spellings of the same arguments."""
    try:
        return _encode(_plain(decode_untrusted(arguments or "{}"))).decode()
    except msgspec.DecodeError:
        return "".join(arguments.split())


def _plain(value: Any) -> Any:
    """The value with whole numbers as such: 1.0 and 1 are the same number."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def counted(repeats: Repeats, calls: tuple[Call, ...]) -> Repeats:
    """Return the repeats after a turn with these calls. A call that did not come again is forgotten."""
    # An example with three turns: grep and ls; grep; grep, always with the same arguments and result. The
    # counts of grep are 1, 2, 3. The second turn forgets ls. The same call twice in one turn counts once.
    # A waiting call has no signature, and is not counted.
    before = dict(repeats)
    signs = [call.stage.signature for call in calls if isinstance(call.stage, Done) and call.stage.signature]
    return tuple([(sign, before.get(sign, 0) + 1) for sign in dict.fromkeys(signs)])


def longest(repeats: Repeats) -> int:
    """Return the longest row of turns with the same call."""
    return max([count for _, count in repeats]) if repeats else 0


# --- evidence of progress -----------------------------------------------------------------------


def told(result: CallResult, shown: str = "") -> str:
    """Return what counts as the result of a call: its status and its whole output, or what the output shows."""
    text = shown or result.blob or result.text.removesuffix(KNOWN)
    return "\0".join([result.status, text, *[each.blob for each in result.attachments]])


def is_waiting(state: State, result: CallResult) -> bool:
    """Return whether the call itself took so long that it was waiting for something."""
    return state.settings is not None and result.duration_ms >= state.settings.guard.wait_s * 1000


def after_call(state: State, call: Call, result: CallResult, sign: str) -> Progress:
    """Return the progress after a call, in the record that tells its result. `sign`: its signature, empty if it
    was waiting."""
    progress, attempt, evidence = state.progress, _attempt_of(call), result.evidence
    if attempt is None:  # the core took the call itself: it tells nothing about the world
        return progress
    if not sign:
        progress = replace(progress, has_waited=True)
    # An example: `cat a.txt` brings the same text as before, so its key is known, and the turn has no news. `grep x`
    # that finds nothing ends with exit code 1, and is an answer. A test that fails brings no key for its result,
    # but one for its counts: 3 failures instead of 5 are news.
    is_error = result.status != "ok" and not evidence.is_negative
    keys = [] if is_error else [_pair(call, result, sign)]
    if evidence.tests:
        keys.append(digest_of(f"tests\0{evidence.tests}"))
    before, progress = progress, with_evidence(progress, keys, state.turn.number)
    if isinstance(attempt.expects, Files):
        return (
            progress if result.status != "ok" else _after_write(progress, attempt.expects, state.turn.number)
        )
    # After a file tool nothing has to be looked at. A command may have changed anything, so the workspace is
    # surveyed beside the next model call, and the response brings what was found.
    has_effect = attempt.effect not in ("read", "ask") and not call.likeness.only_looks
    if has_effect and not progress.may_have_written:
        progress = replace(progress, may_have_written=True)
    if result.status in ("error", "timeout") and is_error:
        return _after_failure(progress, state, call, result)
    if not progress.failures:
        return progress
    return (
        changed(progress)
        if has_effect and progress.seen is not before.seen
        else _after_success(progress, call)
    )


def _attempt_of(call: Call) -> ToolAttempt | None:
    return call.stage.attempt if type(call.stage) is Started else call.interrupted


def _pair(call: Call, result: CallResult, sign: str) -> str:
    """Return the digest of a call with what its result shows. Where both are exactly what they are, it is known."""
    if sign and not call.likeness.digest and not result.evidence.digest:
        return sign
    return digest_of(f"{call.likeness.place or _likeness(call)}\0{told(result, result.evidence.digest)}")


def _likeness(call: Call) -> str:
    """Return what is the same for all spellings of a call."""
    return call.likeness.digest or likeness_of(call.name, call.arguments)


def likeness_of(name: str, arguments: str) -> str:
    """Return the likeness of a call of which the gates know no more than its arguments."""
    return digest_of(f"{name}\0{_canonical(arguments)}")


def _after_write(progress: Progress, files: Files, turn: int) -> Progress:
    """Take the files that a call has written. Nothing has to be looked at: its intent tells what they are now."""
    changes = [change for change in files.changes if change.before != change.after]
    if not changes:
        return progress
    keys = [digest_of(f"{change.path}\0{change.after}") for change in changes]
    progress = with_evidence(progress, keys, turn, is_of_files=True)
    return changed(with_written(progress, changes))


def after_plan(progress: Progress, plan: Plan, turn: int) -> Progress:
    """Take a new plan. Only a step that is done counts: a model can rewrite the others for ever."""
    keys = [digest_of(f"done\0{step.text.casefold()}") for step in plan.steps if step.status == "done"]
    return with_evidence(progress, keys, turn)


def stalled(state: State) -> int:
    """Return how many turns in a row brought nothing new for certain."""
    return max(state.progress.stall - state.progress.is_open, 0)


def wants_note(state: State) -> bool:
    """Return whether the model is to be told that it makes no progress."""
    return not state.progress.is_told and stalled(state) >= max(_limit(state) // 3, 1)


def wants_reflection(state: State) -> bool:
    """Return whether the model is to reflect on it. `progress.has_reflected` says that it has."""
    return not state.progress.has_reflected and stalled(state) >= max(2 * _limit(state) // 3, 1)


def is_stuck(state: State) -> bool:
    """Return whether the run is to end."""
    return stalled(state) >= _limit(state)


def _limit(state: State) -> int:
    return state.settings.guard.stall_turns if state.settings is not None else 1


# --- what failed --------------------------------------------------------------------------------


def failed(state: State) -> tuple[Failed, ...]:
    """Return the approaches that failed in this session, oldest first."""
    return tuple([each for each in state.progress.failures if each.times >= TIMES])


def failed_now(state: State) -> Failed | None:
    """Return the approach that has failed with the newest record."""
    latest = state.progress.failures[-1] if state.progress.failures else None
    return latest if latest is not None and (latest.seq, latest.times) == (state.seq, TIMES) else None


def refusal(state: State, likeness: str) -> str:
    """Return why a call is not to be tried again; empty if it may."""
    # A row counts failures with nothing changed in between. `progress.changed` and a survey that finds another
    # workspace begin it anew, and so do words of a person.
    for each in state.progress.failures:
        if each.likeness == likeness and each.row >= TIMES:
            return FAILED_BEFORE.format(times=each.row, call_id=each.call_id, said=_sentence(each.said))
    return ""


def _after_failure(progress: Progress, state: State, call: Call, result: CallResult) -> Progress:
    likeness, error = _likeness(call), result.evidence.digest or digest_of(result.text)
    others: list[Failed] = []
    before: Failed | None = None
    # One entry for each call and error. The same call with another error is another approach: the earlier row is
    # broken, since something must have changed.
    for each in progress.failures:
        if each.likeness != likeness:
            others.append(each)
        elif each.error == error:
            before = each
        else:  # the same call, another error
            others.append(replace(each, row=0))
    latest = Failed(
        call.name, call.arguments[:SAID_CHARS], _first(result.text), call.call_id, state.seq, likeness, error
    )
    if before is not None:
        latest = replace(latest, row=before.row + 1, times=before.times + 1, workspace=before.workspace)
    return replace(progress, failures=tuple(_kept([*others, latest])))


def _after_success(progress: Progress, call: Call) -> Progress:
    likeness = _likeness(call)
    if not any(each.row and each.likeness == likeness for each in progress.failures):
        return progress
    failures = [replace(each, row=0) if each.likeness == likeness else each for each in progress.failures]
    return replace(progress, failures=tuple(failures))


def _kept(failures: list[Failed]) -> Iterable[Failed]:
    """Return the failures. If they are too many, leave out the oldest that failed only once or twice."""
    if len(failures) <= FAILURES:
        return failures
    oldest = next((each for each in failures if each.times < TIMES), failures[0])
    return [each for each in failures if each is not oldest]


def _first(text: str) -> str:
    """Return the line of an error that says most: the last one, without what the shell tool adds."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("[exit code")] or lines
    return told[-1][:SAID_CHARS] if told else ""


def _sentence(said: str) -> str:
    return said if said.endswith((".", "!", "?")) else f"{said}."
