"""Judges a session with hooks, patches, grants and decisions that come later. It imports nothing of Holdfast.

The effects of a call bear its mark, whatever attempt or repetition of the call made them. The hook's own log says
what it heard; it lies outside the workspace, and nothing but the hook writes it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.torture.effects import calls, conversation, money, requests
from tests.torture.evidence import (
    EFFECTS,
    HOOKS,
    LEDGER,
    Call,
    Evidence,
    Fault,
    Ran,
    bodies,
    journal,
    refs_of,
)
from tests.torture.judge import (
    acknowledged,
    blobs,
    chain,
    codes,
    descriptors,
    inbox,
    leaks,
    left_over,
    messages,
    runs,
    times,
)

Rows = Sequence[Mapping[str, Any]]
PATCHED = ("a", "b", "c", "ledger")
_FAILS = ("guard-deny", "guard-deaf", "guard-flood", "guard-die")
_DECISIONS = ("Approved: your call", "Denied: your call", "The answer to your question")
_HOUR_MS = 3_600_000


def judge_hands(evidence: Evidence, *, is_hooked: bool, most_actions: int) -> list[Fault]:
    """All faults. `most_actions`: so many calls may start within an hour before a person is asked."""
    rows = journal(evidence.home)
    said = [
        row
        for row in rows
        if row["type"] != "MessageReceived" or not row["body"]["text"].startswith(_DECISIONS)
    ]
    session = rows[0]["session"] if rows else ""
    return [
        *chain(rows),
        *blobs(evidence.home, rows),
        *inbox(evidence.home),
        *acknowledged(rows, evidence.ran),
        *messages(said, evidence.ran),
        *runs(rows, evidence.ends),
        *calls(rows),
        *requests(rows, evidence.served),
        *conversation(rows, evidence.served),
        *money(rows, evidence.served),
        *codes(rows, evidence.ran, evidence.said, is_frozen=evidence.is_frozen),
        *times(rows),
        *descriptors(evidence.descriptors),
        *left_over(evidence, session),
        *leaks(evidence),
        *marks(rows, evidence, is_hooked=is_hooked),
        *permissions(rows),
        *decisions(rows, evidence.ran),
        *pace(rows, most_actions),
        *(heard(rows, evidence.folder / HOOKS / "hooks.log") if is_hooked else ()),
    ]


# --- effects ------------------------------------------------------------------------------------


def marks(rows: Rows, evidence: Evidence, *, is_hooked: bool) -> Iterator[Fault]:
    """What a call did is there once where it is said to be done, at most once else, and never if it was refused. A
    patch changed all of its files or none, unless the model was told which."""
    done = counted(evidence)
    ids = {ref: call_id for call_id, ref in refs_of(rows).items()}
    starts = Counter(body["call_id"] for body in bodies(rows, "ToolCallStarted"))
    outcomes = _outcomes(rows)
    words = arguments_of(rows)
    by_mark: dict[str, list[tuple[Call, str]]] = defaultdict(list)
    for each in evidence.served:
        for call in each.calls:
            if call.name in _EFFECTS:
                by_mark[call.mark or _same(words.get(ids.get(call.ref, ""), ""))].append(
                    (call, ids.get(call.ref, ""))
                )
    for mark, made in by_mark.items():
        found = done.pop(mark, Counter())
        began = [(call, call_id) for call, call_id in made if starts[call_id]]
        name = f"{mark} ({', '.join(f'{call_id} {call.name}' for call, call_id in made)})"
        if found and not began:
            yield Fault("unreported", f"{name} did {dict(found)}, and was never started")
        told = [outcomes.get(call_id, ("", "")) for _, call_id in began]
        sure = sum(status not in ("unknown", "cancelled") for status, _ in told)
        for what in _EFFECTS[made[0][0].name]:
            most = len(began) if mark.startswith("same") else 1
            if found[what] > most:
                yield Fault("doubled", f"{name} {what} {found[what]} times")
            is_endless = what == "ended" and '"background":true' in words.get(made[0][1], "").replace(" ", "")
            if found[what] < sum(status == "ok" for status, _ in told) and not is_endless:
                yield Fault("lost", f"{name} is done, and not {what}: {dict(found)}")
        text = words.get(made[0][1], "")
        if is_hooked and found and any(word in text for word in _FAILS):
            yield Fault("unreported", f"{name} did {dict(found)}, and the hook lets no such call pass")
        if is_hooked and found["guard-change"]:
            yield Fault("unreported", f"{name} ran with the arguments that the hook replaced")
        if made[0][0].name == "apply_patch":
            yield from patched(name, found, told, evidence.workspace, mark)
        elif (
            made[0][0].name == "write_file"
            and sure == len(told)
            and "error" in [status for status, _ in told]
            and found
        ):
            yield Fault("unreported", f"{name} did {dict(found)}, and its result says that it failed: {told}")
    for mark, found in done.items():
        yield Fault("unreported", f"{mark} did {dict(found)}, and nobody asked for it")


def patched(
    name: str, found: Counter[str], told: Sequence[tuple[str, str]], workspace: Path, mark: str
) -> Iterator[Fault]:
    """All files or none, or the model knows which."""
    there = [part for part in PATCHED if found[part]]
    unsure = [text for status, text in told if status in ("unknown", "cancelled")]
    if there and len(there) < len(PATCHED):
        if not unsure:
            yield Fault("damaged", f"{name} changed {there} of its files, and told {told}")
        elif not any("changed: " in text for text in unsure):
            yield Fault("unreported", f"{name} changed {there} of its files; the model read {unsure}")
        for text in unsure:
            changed, _, rest = text.partition("not changed: ")
            for part in "abc":
                file = f"{mark}{part}.txt"
                if (file in changed and part not in there) or (file in rest and part in there):
                    yield Fault("unreported", f"{name} changed {there}; the model read {text}")
    if not there and not unsure and (workspace / "made" / f"deep{mark}").exists():
        yield Fault("left", f"{name} changed nothing, and left a folder")
    if there and told and not unsure and all(status == "error" for status, _ in told):
        yield Fault("unreported", f"{name} changed {there}, and its result says that it failed: {told}")


_EFFECTS: dict[str, tuple[str, ...]] = {
    "shell": ("begun", "ended"),
    "write_file": ("w",),
    "apply_patch": PATCHED,
}


def arguments_of(rows: Rows) -> dict[str, str]:
    """The arguments of each call, as the model wrote them."""
    parts = [part for body in bodies(rows, "Responded") for part in body["parts"]]
    return {part["call_id"]: part["arguments"] for part in parts if part["kind"] == "tool_call"}


def _same(arguments: str) -> str:
    return next((f"same{number}" for number in "01" if f"once same{number}" in arguments), "")


def _outcomes(rows: Rows) -> dict[str, tuple[str, str]]:
    """By call: how it ended, and what the model read of that."""
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        body = row["body"]
        match row["type"]:
            case "ToolCallFinished":
                found[body["call_id"]] = body["result"]["status"], body["result"].get("text", "")
            case "ToolCallRefused":
                found[body["call_id"]] = "refused", body["failure"]["message"]
            case "ToolCallAbandoned":
                found[body["call_id"]] = "unknown", body.get("text", "")
    return found


def counted(evidence: Evidence) -> dict[str, Counter[str]]:
    """What each mark did, and how often."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    workspace = evidence.workspace
    log = workspace / EFFECTS
    for line in log.read_text().splitlines() if log.exists() else ():
        mark, _, what = line.partition(" ")
        found[mark][what] += 1
    for path in (workspace / "made").rglob("*.txt"):
        mark, part = path.stem[:-1], path.stem[-1]
        name = str(path.relative_to(workspace))
        found[mark][part] += evidence.renames.get(name, 1)
        if "guard-change" in path.read_text():
            found[mark]["guard-change"] += 1
    for line in (workspace / LEDGER).read_text().splitlines():
        if line.startswith("- edited by "):
            found[line.removeprefix("- edited by ")]["ledger"] += 1
    return found


# --- permissions --------------------------------------------------------------------------------


def permissions(rows: Rows) -> Iterator[Fault]:
    """What a gate asked about starts only with a person's yes to just that call, used once, or under a grant that
    lives."""
    asked: dict[str, Mapping[str, Any]] = {}
    said: dict[str, str] = {}
    grants: dict[str, Mapping[str, Any]] = {}
    uses: Counter[str] = Counter()
    for row in rows:
        body = row["body"]
        match row["type"]:
            case "ApprovalRequested":
                asked[body["approval_id"]] = body
            case "ApprovalResolved":
                said[body["approval_id"]] = body["decision"]
            case "GrantMade":
                grants[body["grant"]["id"]] = body["grant"]
            case "GrantRevoked":
                grants.pop(body["grant_id"], None)
            case "ApprovalConsumed":
                uses[body["approval_id"]] += 1
                if uses[body["approval_id"]] > 1:
                    yield Fault("doubled", f"{body['approval_id']} is used again")
                if said.get(body["approval_id"]) != "approve":
                    yield Fault("unreported", f"{body['approval_id']} is used, and nobody approved it")
            case "ToolCallStarted" if any(each["verdict"] == "ask" for each in body.get("decisions", ())):
                rules = [each.get("rule", "") for each in body["decisions"] if each["by"] == "approval"]
                approved = {each["call_id"] for name, each in asked.items() if said.get(name) == "approve"}
                if why := _not_permitted(body["call_id"], rules, said, grants, approved, row["at_ms"]):
                    yield Fault("unreported", f"{body['call_id']} was asked about and started: {why}")


def _not_permitted(
    call_id: str,
    rules: Sequence[str],
    said: Mapping[str, str],
    grants: Mapping[str, Mapping[str, Any]],
    approved: Container[str],
    at_ms: int,
) -> str:
    """Why nobody permitted the call; empty if somebody did."""
    if not rules:
        return "without an answer"
    rule = rules[0]
    if rule.startswith("deferred:"):
        decision = said.get(rule.removeprefix("deferred:"))
        return "" if decision == "approve" else f"{rule} was decided {decision}"
    if rule:
        grant = next((each for name, each in grants.items() if name in rule), None)
        is_live = grant is not None and at_ms < grant["until_ms"]
        return "" if is_live else f"at {at_ms} under {rule}: {grant}"
    return "" if call_id in approved else "nobody approved it"


def decisions(rows: Rows, ran: Iterable[Ran]) -> Iterator[Fault]:
    """At most one of those who decided about a call read that it counts, and it does."""
    said = {body["approval_id"]: body["decision"] for body in bodies(rows, "ApprovalResolved")}
    granted = {body["approval_id"] for body in bodies(rows, "GrantMade")}
    told: Counter[str] = Counter()
    for command in ran:
        verb, *rest = command.words
        if verb not in ("approve", "deny") or command.code or command.was_killed:
            continue
        told[rest[0]] += 1
        if said.get(rest[0]) not in (verb, "answer"):
            yield Fault(
                "lost", f"{' '.join(command.words)} was told that it counts; it is {said.get(rest[0])}"
            )
        if "--always" in rest and rest[0] not in granted:
            yield Fault("lost", f"{' '.join(command.words)} was told that it counts, and there is no grant")
    for name, count in told.items():
        if count > 1:
            yield Fault("doubled", f"{count} people were told that their decision of {name} counts")


def pace(rows: Rows, most_actions: int) -> Iterator[Fault]:
    """No call starts unasked beyond the number that an hour may have."""
    starts: list[int] = []
    for row in rows:
        body = row["body"]
        if row["type"] == "ToolCallStarted":
            is_asked = any(each["verdict"] == "ask" for each in body.get("decisions", ()))
            now = row["at_ms"]
            lately = [at for at in starts if now - _HOUR_MS < at <= now]
            if body["attempt"] == 1 and len(lately) >= most_actions and not is_asked:
                yield Fault("unreported", f"{body['call_id']} is the {len(lately) + 1}th within an hour")
            starts += [now] if body["attempt"] == 1 else []


# --- hooks --------------------------------------------------------------------------------------


def heard(rows: Rows, log: Path) -> Iterator[Fault]:
    """Each hook heard of everything once, and more often only after somebody died; what it said was obeyed."""
    begun: Counter[tuple[str, str, str]] = Counter()
    ended: Counter[tuple[str, str, str]] = Counter()
    for line in log.read_text().splitlines() if log.exists() else ():
        _, pid, what, *words = json.loads(line)
        if what == "begun":
            begun[tuple(words)] += 1  # type: ignore[index]
        elif what == "ended":
            ended[tuple(words)] += 1  # type: ignore[index]
        elif what == "holds":
            yield Fault("left", f"the hook {pid} has a file of its driver open: {words}")
        elif what == "overlaps":
            yield Fault("doubled", f"the hook heard {words} in process {pid} while it was at work on another")
    epochs = sum(row["type"] == "Attached" for row in rows)
    told: Counter[tuple[str, str, str]] = Counter()
    for body in bodies(rows, "HookEnded"):
        place = body["hook"], body["event"], body["subject"]
        told[place] += 1
        if told[place] > 1 and body["event"] != "before_model":
            yield Fault("doubled", f"{place} is recorded {told[place]} times")
        if body["status"] == "ok" and not ended[place]:
            yield Fault("unreported", f"{place} is recorded as heard, and the hook did not say so")
    for place, count in begun.items():
        if place[1] not in ("before_tool", "before_model") and count > epochs + 1:
            yield Fault("doubled", f"{place} was told {count} times to {epochs} drivers")
    for place in due(rows):
        if not told[place]:
            yield Fault("lost", f"nobody told {place}")
    for body in bodies(rows, "ToolCallStarted"):
        call_id = body["call_id"]
        rules = [each.get("rule") for each in body.get("decisions", ()) if each["by"] == "hook"]
        if "hook:guard" not in rules or not ended["guard", "before_tool", call_id]:
            yield Fault("unreported", f"{call_id} was started, and the hook was not asked: {rules}")


def due(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """What the hook `log` must have heard, as long as nobody stopped the run."""
    last = max((row["seq"] for row in rows if row["type"] == "RunStopped"), default=0)
    aside = {body["call_id"] for body in bodies(rows, "ApprovalRequested") if body.get("is_deferred")}
    stopped = [
        row["seq"] for row in rows if row["type"] == "RunStopped" and row["body"]["status"] == "interrupted"
    ]
    for row in rows:
        body, type_ = row["body"], row["type"]
        if type_ == "RunStopped":
            yield "log", "run_end", str(body["run"])
        if row["seq"] > last or any(row["seq"] < seq for seq in stopped):
            continue
        if type_ == "Responded":
            yield "log", "after_model", body["key"]
        elif type_ in ("ToolCallFinished", "ToolCallRefused", "ToolCallAbandoned"):
            if body["call_id"] in aside:  # it has not run
                continue
            yield "log", "after_tool", body["call_id"]
        elif type_ == "ApprovalRequested":
            yield "log", "approval", body["approval_id"]
