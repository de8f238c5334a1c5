"""A run that is killed again and again: one life from the start of a command to its end, and what it must leave.

The work is told by `Story`: files that show when something was done twice, and commands that leave a line each.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.sandbox import keeper
from tests.edge.machine import CUSTOMIZED, Machine, call, lines_of, of_type

SESSION = "test:kill"
EFFECTS = "effects.log"
LEDGER = "ledger.md"
DELAY_S = 0.08
SLEEP_S = 0.15
MOST_RECORDS = 14
"""A life tells at most so many records, and what comes in a moment, before it is killed."""
UNKNOWN = "The outcome of this call is unknown"


@dataclass(frozen=True)
class Story:
    """So many rounds of: write a file and look at another, add a line to the ledger, run a command."""

    rounds: int

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the model says."""
        lines = [[call("write_file", path=LEDGER, content="- end\n")]]
        for number in range(1, self.rounds + 1):
            leaves = "(setsid sleep 300 &)"
            says = [f"echo {number} {what} >> {EFFECTS}" for what in ("begun", "ended")]
            command = "; ".join((says[0], leaves, f"sleep {SLEEP_S}", says[1]))
            lines += [
                [
                    call("write_file", path=f"part/{number}.txt", content=f"part {number}\n" * 200),
                    call("read_file", path=LEDGER),
                ],
                [call("edit_file", path=LEDGER, old="- end\n", new=f"- step {number}\n- end\n")],
                [call("shell", command=command)],
            ]
        said = [
            {"text": f"Step {at}.", "tool_calls": calls, "delay_s": DELAY_S} for at, calls in enumerate(lines)
        ]
        return [*said, {"text": "All is done.", "delay_s": DELAY_S}]

    @property
    def files(self) -> dict[str, str]:
        """What stands in the workspace afterwards, but for the effects of the commands."""
        steps = "".join(f"- step {number}\n" for number in range(1, self.rounds + 1))
        parts = {f"part/{number}.txt": f"part {number}\n" * 200 for number in range(1, self.rounds + 1)}
        return {LEDGER: f"{steps}- end\n", **parts}


@dataclass
class Life:
    """One process, from its start to its end."""

    pid: int
    started_s: float
    records: list[dict[str, Any]] = field(default_factory=list)
    """What it told, and with that acknowledged."""
    code: int = 0

    @property
    def is_killed(self) -> bool:
        """Whether it did not come to an end of its own."""
        return self.code == -9


class Kill(NamedTuple):
    """When a life is killed: so long after it told so many records, or at a moment (`tests/edge/customized`)."""

    records: int
    delay_s: float = 0.0
    moment: str = ""

    @property
    def environ(self) -> dict[str, str]:
        """What tells the command of the moment."""
        if not self.moment:
            return {}
        return {"PYTHONPATH": str(CUSTOMIZED), "MOMENT": self.moment, "SIGNAL": "9"}


def live(machine: Machine, *arguments: str, kill: Kill | None = None) -> Life:
    """Run a command and read what it tells; without a kill it is left alone."""
    life = Life(0, time.time())
    with machine.start(*arguments, "--stream-json", **(kill.environ if kill else {})) as process:
        life.pid = process.pid
        killer = threading.Timer(kill.delay_s, process.kill) if kill else None
        for line in lines_of(process):
            if line.endswith("\n") and '"seq"' in line:
                life.records.append(json.loads(line))
            if kill and killer and len(life.records) == kill.records and killer.ident is None:
                killer.start()
        life.code = process.wait()
        if killer:
            killer.cancel()
    return life


def begin(machine: Machine, story: Story, session: str = SESSION) -> tuple[str, ...]:
    """The command that begins the story."""
    model = machine.script(story.lines)
    return ("run", "Keep the ledger.", "-s", session, "-m", model, "--autonomy", "full", "--max-turns", "100")


def lives(machine: Machine, story: Story, kills: int, seed: int) -> list[Life]:
    """Run the story, kill it, resume it, kill that, and so on; the last life is left alone.

    Three of four are killed while they drive, the others at a moment that comes while they load, open the
    database, take over, or have just begun.
    """
    chance = random.Random(seed)
    lived: list[Life] = []
    for number in range(kills):
        kill = Kill(chance.randint(1, MOST_RECORDS), chance.uniform(0, DELAY_S))
        if number and chance.random() < 0.25:
            moment = chance.choice((f".{chance.randint(1, 5_000)}", f"S{chance.randint(1, 40)}"))
            kill = Kill(MOST_RECORDS, moment=moment)
        command = ("resume", SESSION) if number else begin(machine, story)
        lived.append(live(machine, *command, kill=kill))
    return [*lived, live(machine, "resume", SESSION)]


# --- what must hold -----------------------------------------------------------------------------


def check(machine: Machine, story: Story, lived: Sequence[Life]) -> None:
    """Nothing acknowledged is lost, nothing happened twice, what is unknown is told, nothing is left over."""
    assert lived[-1].code == 0
    journal = machine.events(SESSION)
    check_acknowledged(journal, lived)
    check_conversation(journal, story)
    check_calls(journal)
    check_effects(machine, journal, story)
    check_told(machine, journal)
    check_nothing_left(machine, journal, lived)
    assert machine.holdfast("fsck").code == 0


def check_acknowledged(journal: Sequence[dict[str, Any]], lived: Sequence[Life]) -> None:
    """Every record that a life told stands in the journal as it was told, and every life tells a row of them."""
    told_to = 0
    for life in lived:
        for record in life.records:
            written = journal[record["seq"] - 1]
            assert record == {**{name: written[name] for name in ("seq", "at", "type")}, **written["body"]}
        seqs = [record["seq"] for record in life.records]
        assert seqs == list(range(seqs[0], seqs[-1] + 1)) if seqs else True
        assert not seqs or seqs[0] > told_to, "what was told once is not written anew"
        told_to = max([told_to, *seqs])
    assert [record["seq"] for record in journal] == list(range(1, len(journal) + 1))


def check_conversation(journal: Sequence[dict[str, Any]], story: Story) -> None:
    """The model answered every question once, and the run ended once, as an uninterrupted one does."""
    said = [
        {
            "text": "".join(part["text"] for part in body["parts"] if part["kind"] == "text"),
            "calls": [
                (part["name"], json.loads(part["arguments"]))
                for part in body["parts"]
                if part["kind"] == "tool_call"
            ],
        }
        for body in of_type(journal, "Responded")
    ]
    scripted = [
        {
            "text": line["text"],
            "calls": [(each["name"], each["arguments"]) for each in line.get("tool_calls", ())],
        }
        for line in story.lines
    ]
    assert said == scripted
    assert len(of_type(journal, "MessageReceived")) == len(of_type(journal, "RunStarted")) == 1
    assert [(body["status"], body["reason"]) for body in of_type(journal, "RunStopped")] == [
        ("done", "answer")
    ]


def check_calls(journal: Sequence[dict[str, Any]]) -> None:
    """Every started call has one outcome. Only a command that was cut short is abandoned, and it runs once."""
    starts = Counter((body["call_id"], body["name"]) for body in of_type(journal, "ToolCallStarted"))
    finished = Counter(body["call_id"] for body in of_type(journal, "ToolCallFinished"))
    abandoned = Counter(body["call_id"] for body in of_type(journal, "ToolCallAbandoned"))
    for (call_id, name), count in starts.items():
        if name == "shell":
            assert (count, finished[call_id] + abandoned[call_id]) == (1, 1), call_id
        else:
            assert (finished[call_id], abandoned[call_id]) == (1, 0), call_id
    assert not of_type(journal, "ToolCallRefused")
    assert {body["result"]["status"] for body in of_type(journal, "ToolCallFinished")} == {"ok"}
    assert sum(abandoned.values()) == cut_short(journal)


def cut_short(journal: Sequence[dict[str, Any]]) -> int:
    """How many commands were at work when their driver was killed."""
    open_: set[str] = set()
    count = 0
    for record in journal:
        body = record["body"]
        match record["type"]:
            case "ToolCallStarted" if body["name"] == "shell":
                open_.add(body["call_id"])
            case "ToolCallFinished":
                open_.discard(body["call_id"])
            case "Attached":
                count, open_ = count + len(open_), set()
    return count


def check_effects(machine: Machine, journal: Sequence[dict[str, Any]], story: Story) -> None:
    """The files are those of an uninterrupted run; a command's lines are there once, or not if it was cut short."""
    found = files_of(machine.workspace)
    effects = Counter(found.pop(EFFECTS, "").splitlines())
    assert found == story.files
    names = {body["call_id"]: body["name"] for body in of_type(journal, "ToolCallStarted")}
    shells = [call_id for call_id, name in names.items() if name == "shell"]
    abandoned = {body["call_id"] for body in of_type(journal, "ToolCallAbandoned")}
    assert len(shells) == story.rounds
    for number, call_id in enumerate(shells, 1):
        counts = (effects.pop(f"{number} begun", 0), effects.pop(f"{number} ended", 0))
        if call_id in abandoned:
            assert counts <= (1, 1)
            assert max(counts) <= 1
        else:
            assert counts == (1, 1)
    assert not effects


def files_of(folder: Path) -> dict[str, str]:
    """Every file below the folder and its content, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def check_told(machine: Machine, journal: Sequence[dict[str, Any]]) -> None:
    """In the last request the model reads of every call whose outcome is unknown."""
    abandoned = of_type(journal, "ToolCallAbandoned")
    if abandoned:
        sent = len(of_type(journal, "ModelCallStarted"))
        shown = machine.holdfast("show", SESSION, "--request", str(sent))
        assert shown.out.count(UNKNOWN) == len(abandoned)


def check_nothing_left(machine: Machine, journal: Sequence[dict[str, Any]], lived: Sequence[Life]) -> None:
    """No process of a tool and no keeper is alive; no socket of a dead process lies in the home."""
    session = journal[0]["body"]["session"]
    keys = {f"{session}:{body['call_id']}" for body in of_type(journal, "ToolCallStarted")}
    assert keeper.members(keys) == set()
    assert keepers_of({life.pid for life in lived}) == []
    assert list((machine.home / "run").iterdir()) == []


def keepers_of(drivers: set[int]) -> list[int]:
    """The keepers of these processes that still live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if (
                any(word.endswith(b"keeper.py") for word in words)
                and {int(w) for w in words if w.isdigit()} & drivers
            ):
                found.append(int(entry.name))
    return found
