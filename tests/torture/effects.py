"""Judges what was asked for against what was done: calls and their effects, requests and answers, money.

Nothing of Holdfast is imported here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture.evidence import (
    EFFECTS,
    LEDGER,
    OPEN_FILES,
    RULE,
    RULES,
    Evidence,
    Fault,
    Kind,
    Served,
    bodies,
    is_aside,
    refs_of,
)

BEGUN, ENDED, EDITED = "begun", "ended", "edited"
LOW_ESTIMATE = 10
"""An estimate in the place of a count may be too low by such a part."""
BYTES_PER_TOKEN = 4
"""As the server counts."""
UNKNOWN = "may have taken effect in full, in part or not at all"
"""The words for the model about a call that may have happened."""
DEFAULT_LIMIT_MICROUSD = 2_000_000
"""What a run may spend that names no limit."""


_MARK = b',"cache_control":{"type":"ephemeral"}'


def calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Each call that a response brought has one outcome; nothing runs that has one, or whose driver is gone."""
    outcome: dict[str, str] = {}
    known: set[str] = set()
    attempts: Counter[str] = Counter()
    epoch = 0
    for row in rows:
        body, type_ = row["body"], row["type"]
        call_id = body.get("call_id", "")
        match type_:
            case "Attached":
                epoch = body["epoch"]
            case "Responded":
                known |= {part["call_id"] for part in body["parts"] if part["kind"] == "tool_call"}
            case "ToolCallStarted":
                attempts[call_id] += 1
                if call_id not in known:
                    yield Fault("unreported", f"{call_id} was started, and no response asks for it")
                if call_id in outcome:
                    yield Fault("doubled", f"{call_id} was started after it was {outcome[call_id]}")
                if body["epoch"] != epoch or body["attempt"] != attempts[call_id]:
                    yield Fault("doubled", f"{call_id} was started by another driver or twice in one attempt")
                if attempts[call_id] > 1 and body["on_interrupt"] == "unknown":
                    yield Fault("doubled", f"{call_id} must not be repeated, and was")
            case "ToolCallFinished" | "ToolCallAbandoned" | "ToolCallRefused":
                if call_id in outcome:
                    yield Fault("doubled", f"{call_id} was {outcome[call_id]}, and then {type_}")
                outcome[call_id] = type_
    for call_id in sorted(known - outcome.keys()):
        yield Fault("lost", f"nobody says what {call_id} came to")


def requests(rows: Sequence[Mapping[str, Any]], served: Sequence[Served]) -> Iterator[Fault]:
    """What came to the server was recorded before, and sent once for each record; what it answered is there once."""
    meant = Counter(body["request"]["sha256"] for body in bodies(rows, "ModelCallStarted"))
    for sha256, count in Counter(each.sha256 for each in served).items():
        if not meant[sha256]:
            yield Fault("unreported", f"a request was sent and not recorded: {sha256}")
        elif count > meant[sha256]:
            yield Fault("doubled", f"a request was recorded {meant[sha256]} times and sent {count} times")
    sent = {each.ref: each for each in served}
    heard = Counter(body.get("request_ref", "") for body in _responses(rows))
    for ref, count in heard.items():
        if ref not in sent and served:
            yield Fault("unreported", f"a response is recorded that the server did not send: {ref}")
        if count > 1:
            yield Fault("doubled", f"the response {ref} is recorded {count} times")
    outcomes = Counter(
        body["key"]
        for body in bodies(
            rows, "Responded", "ModelCallFailed", "ModelCallCut", "ModelCallAbandoned", "SideCallEnded"
        )
    )
    for body in bodies(rows, "ModelCallStarted"):
        if outcomes[body["key"]] != 1:
            kind: Kind = "doubled" if outcomes[body["key"]] else "lost"
            yield Fault(kind, f"the model call {body['key']} has {outcomes[body['key']]} outcomes")
    for body in _responses(rows):
        answer = sent.get(body.get("request_ref", ""))
        if answer is not None:
            refs = [part["ref"] for part in body.get("parts", ()) if part["kind"] == "tool_call"]
            if refs != [call.ref for call in answer.calls]:
                yield Fault("lost", f"the response {answer.ref} is recorded with other calls: {refs}")
            counted = (body["usage"].get("input_tokens", 0), body["usage"].get("output_tokens", 0))
            if counted != answer.usage:
                yield Fault("lost", f"{answer.ref} counts {counted} tokens, the server {answer.usage}")


def _responses(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The answers that were recorded, those of side calls too."""
    found = bodies(rows, "Responded", "SideCallEnded")
    return [body for body in found if body.get("status", "responded") == "responded"]


class Heard(NamedTuple):
    """What a request tells the model of the conversation so far."""

    asked: list[str]
    """The refs of the calls, in order."""
    answered: list[tuple[str, str]]
    """The refs that have a result, and its text."""


def heard(body: bytes) -> Heard:
    """As Chat Completions and Messages have it."""
    asked: list[str] = []
    answered: list[tuple[str, str]] = []
    for message in json.loads(body)["messages"]:
        asked += [call["id"] for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            answered.append((message["tool_call_id"], message["content"]))
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                asked.append(block["id"])
            elif block["type"] == "tool_result":
                answered.append((block["tool_use_id"], json.dumps(block["content"], ensure_ascii=False)))
    return Heard(asked, answered)


def conversation(rows: Sequence[Mapping[str, Any]], served: Sequence[Served]) -> Iterator[Fault]:
    """In each request every call has one result, of a call that was made; and each begins as the one before does,
    unless a record between them says that the view was cut or restored. The request of a side call too."""
    views, talks = views_of(rows), [b""]
    view = next(iter(views.values()), 0)
    for number, each in enumerate(served):
        yield from pairs(number, each.body)
        talk, now = spoken(each.body), views.get(each.sha256, view)
        begins = [talks[-1]]
        if is_aside(each.body):  # it is made of a request for work, and may come after the next one
            begins = talks
        else:
            talks = [*talks[-2:], talk]
        if now == view and not any(talk.startswith(begin) for begin in begins if begin or begins == [b""]):
            at = next(at for at, (a, b) in enumerate(zip(begins[-1], talk + b"\0", strict=False)) if a != b)
            yield Fault("lost", f"request {number} is another from byte {at} on: {talk[at : at + 80]!r}")
        if not is_aside(each.body):
            view = now
    if not served:
        return
    texts: dict[str, str] = {}
    for each in served:
        texts |= dict(heard(each.body).answered)
    refs = refs_of(rows)
    for body in bodies(rows, "ToolCallAbandoned"):
        text = texts.get(refs.get(body["call_id"], ""), "")
        if UNKNOWN not in text and not body.get("is_lost"):
            yield Fault(
                "unreported", f"the model was not told that nobody knows of {body['call_id']}: {text!r}"
            )


def pairs(number: int, body: bytes) -> Iterator[Fault]:
    """Each call has one result, and each result its call."""
    told = heard(body)
    results = Counter(ref for ref, _ in told.answered)
    for ref, count in Counter(told.asked).items():
        if count > 1 or results[ref] > 1:
            yield Fault("doubled", f"request {number} holds the call {ref} or its result more than once")
        elif not results[ref]:
            yield Fault("lost", f"request {number} holds the call {ref} without a result")
    for ref in results.keys() - set(told.asked):
        yield Fault("unreported", f"request {number} holds a result of {ref}, for which nobody asked")


def views_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By the hash of a request: how often the view or the prompt had changed when it was recorded."""
    found, count = {}, 0
    for row in rows:
        if row["type"] in ("ContextCompacted", "ContextRestored", "PromptBuilt"):
            count += 1
        elif row["type"] == "ModelCallStarted":
            request = row["body"]["request"]
            other = row["body"].get("purpose", "work") != "work" and row["body"]["model"].endswith("gpt-side")
            found[request["sha256"]] = -1 if other else count
    return found


def kept(rows: Sequence[Mapping[str, Any]], served: Sequence[Served]) -> Iterator[Fault]:
    """Each request for work has the task, the rule and the open step of the plan."""
    task = step = ""
    wanted: dict[str, tuple[str, str]] = {}
    pending = ""
    for row in rows:
        match row["type"]:
            case "MessageReceived":
                pending = row["body"]["text"]
            case "RunStarted":
                task = pending
            case "PlanChanged":
                step = next(
                    (s["text"] for s in row["body"]["plan"]["steps"] if s.get("status") == "in_progress"), ""
                )
            case "ModelCallStarted" if row["body"].get("purpose", "work") == "work":
                wanted[row["body"]["request"]["sha256"]] = task, step
    for number, each in enumerate(served):
        if each.sha256 in wanted:
            task, step = wanted[each.sha256]
            for what in (task, RULE, step):
                if what.encode() not in each.body:
                    yield Fault("lost", f"request {number} does not tell {what!r}")


def spoken(body: bytes) -> bytes:
    """The messages of a request, as bytes that the next request begins with. Marks of the cache move."""
    body = body.replace(_MARK, b"")
    start = body.index(b'"messages":[')
    end = re.search(rb'\],"(?:max_tokens|stream|tools|system|max_completion_tokens)"', body[start:])
    return body[start : start + end.start() if end else -2]


def effects(rows: Sequence[Mapping[str, Any]], evidence: Evidence) -> Iterator[Fault]:
    """What a call did is there once where it is said to be done, at most once where nobody knows, and never else."""
    done = counted(evidence.workspace, evidence.renames)
    ids = {ref: call_id for call_id, ref in refs_of(rows).items()}
    outcomes = _outcomes(rows)
    started = {body["call_id"] for body in bodies(rows, "ToolCallStarted")}
    for call in [call for each in evidence.served for call in each.calls]:
        call_id = ids.get(call.ref, "")
        outcome = outcomes.get(call_id, "")
        for what in _EFFECTS.get(call.name, ()):
            count = done.pop((call.mark, what), 0)
            if count > 1:
                yield Fault("doubled", f"{call.mark} ({call_id} {call.name}) {what} {count} times")
            elif outcome == "ok" and not count:
                yield Fault("lost", f"{call.mark} ({call_id} {call.name}) is done, and not {what}")
            elif count and call_id not in started:
                yield Fault(
                    "unreported", f"{call.mark} ({call_id} {call.name}) {what}, and was never started"
                )
            elif count and outcome in ("", "refused"):
                yield Fault("unreported", f"{call.mark} ({call_id} {call.name}) {what}, but is {outcome!r}")
    for (mark, what), count in done.items():
        yield Fault("unreported", f"{mark} {what} {count} times, and nobody asked for it")


_EFFECTS: dict[str, tuple[str, ...]] = {
    "shell": (BEGUN, ENDED),
    "write_file": (ENDED,),
    "edit_file": (EDITED,),
}


def _outcomes(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By call: `ok`, another status of a result, `refused` or `unknown`."""
    found: dict[str, str] = {}
    for row in rows:
        match row["type"]:
            case "ToolCallFinished":
                found[row["body"]["call_id"]] = row["body"]["result"]["status"]
            case "ToolCallRefused":
                found[row["body"]["call_id"]] = "refused"
            case "ToolCallAbandoned":
                found[row["body"]["call_id"]] = "unknown"
    return found


def counted(workspace: Path, renames: Mapping[str, int]) -> Counter[tuple[str, str]]:
    """How often each mark had each effect.

    A command leaves a line for its begin and its end. A file that is written bears the mark in its name: it counts
    as often as it was replaced, unless an edit replaced it once more. An edit leaves a line with its mark.
    """
    done: Counter[tuple[str, str]] = Counter()
    log = workspace / EFFECTS
    for line in log.read_text().splitlines() if log.exists() else ():
        mark, _, what = line.partition(" ")
        done[mark, what] += 1
    edits: Counter[str] = Counter()
    for path in sorted(workspace.rglob("*")):
        if not path.is_file() or path.name in (EFFECTS, OPEN_FILES, RULES):
            continue
        name = str(path.relative_to(workspace))
        for mark in re.findall(r"edited by (\w+)", path.read_text()):
            done[mark, EDITED] += 1
            edits[name] += 1
        if name != LEDGER:
            done[path.stem, ENDED] += (renames.get(name, 1)) - edits[name]
    return done


def money(rows: Sequence[Mapping[str, Any]], served: Sequence[Served]) -> Iterator[Fault]:
    """What the server charges is spent or held, and no more than a run may spend is either."""
    limits = {
        name: group.get("cost_microusd", DEFAULT_LIMIT_MICROUSD)
        for body in bodies(rows, "SettingsStored")
        for name, group in body["groups"].items()
        if group["type"] == "limits"
    }
    spent = held = guessed = 0
    reserved: dict[str, int] = {}
    run = limit = 0
    for row in rows:
        body = row["body"]
        match row["type"]:
            case "RunStarted" | "SettingsChanged":
                limit = limits.get(body["settings"]["limits"], 0)
                run = 0 if row["type"] == "RunStarted" else run
            case "ModelCallStarted":
                reserved[body["key"]] = body["request"]["reserved_microusd"]
            case "Responded" | "ModelCallFailed" | "ModelCallCut" | "SideCallEnded":
                spent += body.get("cost_microusd", 0)
                run += body.get("cost_microusd", 0)
                guessed += body.get("cost_microusd", 0) if body.get("estimated") else 0
                reserved.pop(body["key"], 0)
            case "ModelCallAbandoned":
                held += reserved[body["key"]]
                run += reserved.pop(body["key"])
        if limit and run + sum(reserved.values()) > limit:
            yield Fault("lost", f"at record {row['seq']} {run} of {limit} micro-dollars are spent or held")
    for body in bodies(rows, "ModelCallCut"):
        if body["usage"].get("output_tokens", 0) < len(body.get("text", "")) // BYTES_PER_TOKEN:
            yield Fault(
                "unreported", f"words of {body['key']} had come, and are not counted: {body['text']!r}"
            )
    charged = sum(each.cost_microusd for each in served) - never_came(rows, served)
    if charged > spent + held + sum(reserved.values()) + guessed // LOW_ESTIMATE:
        yield Fault(
            "unreported", f"the server charged {charged}, the journal has {spent} spent and {held} held"
        )


def _cut(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        body for body in bodies(rows, "ModelCallCut", "SideCallEnded") if body.get("status", "cut") == "cut"
    ]


def never_came(rows: Sequence[Mapping[str, Any]], served: Sequence[Served]) -> int:
    """What the server charges for answers that were ready when their calls were cut: such a call is reported with its
    input and what had come, as an estimate. No answer that is known otherwise is among them."""
    sent = {body["key"]: body["request"]["sha256"] for body in bodies(rows, "ModelCallStarted")}
    told = {ref for each in served for ref in heard(each.body).asked}
    told |= {body.get("request_ref", "") for body in _responses(rows)}
    unheard = [each for each in served if told.isdisjoint({each.ref, *(call.ref for call in each.calls)})]
    total = 0
    for body in _cut(rows):
        answers = [each for each in unheard if each.sha256 == sent[body["key"]]]
        if answers and "output" in body.get("estimated", ()):
            answer = max(answers, key=lambda each: each.output_microusd)
            unheard.remove(answer)
            missing = answer.cost_microusd - body.get("cost_microusd", 0)
            total += max(min(missing, answer.output_microusd), 0)
    return total
