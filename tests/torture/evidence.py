"""What is known of a tortured session, and how its journal is read: with sqlite3 and json alone.

Nothing of Holdfast is imported here, nor by those who judge.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["lost", "doubled", "unreported", "code", "hang", "left", "damaged", "leaked"]
"""`left`: processes, files, descriptors or commands that nobody takes. `damaged`: what is stored is not whole.
`leaked`: a secret is stored or sent."""

DATABASE = "holdfast.db"
HOOKS = "hooks"
"""The folder of the hook of a session that has one, beside the workspace."""
EFFECTS, OPEN_FILES, LEDGER = "effects.log", "open-files.log", "ledger.md"

RULE = "Standing rule: leave rock.txt alone."
RULES = "AGENTS.md"
"""The file that has the rule."""
SECRET = "-".join(("sk", "ant", "api03", "Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0" * 3))
"""Looks like a key: a command prints it, and a summary may contain it."""
STEPS = tuple(f"look after part {number} of the whole" for number in range(12))
"""The plan of a long session."""
_ASIDE = (b"[holdfast] Sum up the work so far.", b"[holdfast] Judge how the task is going.")


def is_aside(body: bytes) -> bool:
    """Whether a request is one of a side call: it ends with the question."""
    return any(
        each in body[-6_000:] and body.rindex(each) > body.rfind(b'"role":"assistant"') for each in _ASIDE
    )


class Fault(NamedTuple):
    """Something that must not be."""

    kind: Kind
    what: str


@dataclass(frozen=True)
class Call:
    """A tool call that the server asked for. All its effects contain its mark; those of other calls do not."""

    ref: str
    mark: str
    name: str
    path: str = ""


@dataclass
class Served:
    """One request as it came, and what the server answered."""

    body: bytes
    ref: str
    """The server's name of the answer."""
    calls: tuple[Call, ...] = ()
    usage: tuple[int, int] = (0, 0)
    """Input and output tokens, as a whole answer reports them."""
    cost_microusd: int = 0
    """What the server charges, whether or not anybody hears the answer."""
    output_microusd: int = 0
    """How much of that is for the answer itself."""

    @property
    def sha256(self) -> str:
        """The hash of the body, in hex."""
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True)
class Ran:
    """One command, from its start to its end."""

    words: tuple[str, ...]
    code: int
    rows: tuple[dict[str, Any], ...] = ()
    """What it told on stdout."""
    was_killed: bool = False
    hung: bool = False
    says: str = ""
    """The message that it brought to the session."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """What it told of the journal."""
        return [row for row in self.rows if "seq" in row and "type" in row]


@dataclass(frozen=True)
class Evidence:
    """All that is known of one session when every process is done."""

    folder: Path
    """Everything lies below it."""
    home: Path
    workspace: Path
    ran: Sequence[Ran]
    served: Sequence[Served] = ()
    renames: Mapping[str, int] = field(default_factory=dict)
    """How often each file of the workspace was replaced, as the kernel told."""
    ends: frozenset[str] = frozenset({"done"})
    """How runs may have ended."""
    said: str = ""
    """What all commands said for people."""
    is_frozen: bool = False
    """Whether a process slept meanwhile (SIGSTOP). One that sleeps in a transaction keeps the database locked."""
    pids: frozenset[int] = frozenset()
    """The processes of all commands that ran."""
    descriptors: Sequence[tuple[int, int]] = ()
    """The pid of a driver and how many files it held open, each time when a request came."""


def journal(home: Path) -> list[dict[str, Any]]:
    """The records of all sessions, each session in its order, with bodies as data."""
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute(
            "SELECT s.id AS session, r.seq, r.at_ms, r.awake_ms, r.epoch, r.cause, r.type, r.v, r.body AS raw,"
            " r.link, s.seq AS head FROM records AS r JOIN sessions AS s ON s.number = r.session"
            " ORDER BY s.number, r.seq"
        ).fetchall()
    return [{**row, "body": json.loads(row["raw"])} for row in map(dict, found)]


def bodies(rows: Iterable[Mapping[str, Any]], *types: str) -> list[dict[str, Any]]:
    """The bodies of the records of these types."""
    return [row["body"] for row in rows if row["type"] in types]


def refs_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The server's name of each call, by ours."""
    parts = [part for body in bodies(rows, "Responded") for part in body["parts"]]
    return {part["call_id"]: part["ref"] for part in parts if part["kind"] == "tool_call"}
