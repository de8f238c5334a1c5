"""What a tool declares about itself, what a gate decides about a call, and the result of a call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from holdfast.protocol.answers import ANSWER, Answer
from holdfast.protocol.evidence import ANY_CALL, NOTHING_SHOWN, Evidence, Likeness
from holdfast.protocol.failures import Failure
from holdfast.protocol.fence import Walled
from holdfast.protocol.messages import Attachment, Verdict
from holdfast.protocol.plan import UPDATE_PLAN, PlanUpdate
from holdfast.protocol.traffic import Traffic
from holdfast.protocol.trust import Trust

Effect = Literal["read", "write", "exec", "network", "ask", "tell"]
"""`ask` is a question to a person: it has no effect on the world, and a person's answer is its result. `tell` tells
Holdfast something: the core takes the call itself, and nothing runs. Only Holdfast's own tools have it.
"""

TELLING = frozenset((UPDATE_PLAN, ANSWER))
"""The tools with the effect `tell`."""

OnInterrupt = Literal["rerun", "probe", "unknown"]
"""What to do if a call's outcome is unknown after a crash: run it again, probe whether it happened, or only tell the
model that the outcome is unknown.
"""


ParameterKind = Literal["path", "command", "url", "timeout", "query", "method", "patch"]
"""What an argument means to the gates. `path`: a file or folder, relative to the workspace. `command`: text for a
shell. `url`: an address. `timeout`: the seconds that this call may take, instead of the tool's own limit. `query`:
what is searched for; the guard compares only where, and what was found. `method`: of an HTTP request; a call with one
of `READING` may run again after a crash. `patch`: the text of a patch, which names files; all of them are judged.
"""

READING = frozenset({"GET", "HEAD"})
"""The methods of HTTP that change nothing."""

KNOWN = "\n[unchanged since you last read it]"
"""The end of a result that was answered from what is known."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool as the model and the gates see it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema (2020-12) of the arguments object."""
    effect: Effect = "exec"
    on_interrupt: OnInterrupt = "unknown"
    timeout_s: float = 120.0
    keeps_time: bool = False
    """Whether the tool ends by itself at its limits, and says what it did until then. Any other tool is cancelled."""
    max_output_chars: int = 24_000
    """What the model sees of one result. The whole is kept as a blob."""
    source: str = "foreign"
    """Who made it: `builtin` (comes with Holdfast), `function` (belongs to the program), otherwise `foreign`."""
    trust: Trust = "untrusted"
    """The trust of its results."""
    is_private: bool | None = None
    """Whether its results show what is not meant for others. None: if they are `data`; of a tool that writes, only
    those that say why it failed."""
    stand_ins: tuple[str, ...] = ()
    """Tools that the model may call instead, if this one cannot work whatever its arguments are."""
    kinds: dict[str, ParameterKind] = {}
    """The parameters that mean something to the gates, by name. The gates look only at these. Every text inside such
    an argument counts as one path, command or URL.
    """


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file that a call will change."""

    path: str
    """Relative to the workspace."""
    before: str
    """A hash of the content in hex; empty if there is no file."""
    after: str
    mode: int = 0
    """The permission bits of the file before; 0 if there is no file."""
    new_folders: int = 0
    """How many of the folders above it will be made."""
    is_large: bool = False
    """The file before is too large to be kept."""


MARK_DIGITS = 32


class Written(msgspec.Struct, frozen=True, gc=False):
    """A file as a file tool left it."""

    path: str
    """Relative to the workspace."""
    mark: str
    """The first `MARK_DIGITS` of the hash of its content (`FileChange.after`); empty if the file is gone, or the one
    before it is not kept.
    """


class FileRestore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file that is put back, if it still is what it was when this was decided."""

    workspace: str
    path: str
    """Relative to the workspace."""
    before: str
    """The mark of the content now; empty if there is no file."""
    after: str
    """The mark of the content that is put back; empty if the file is removed."""
    before_mode: int = 0
    mode: int = 0
    """The permission bits that are put back; 0: those of a new file."""
    new_folders: int = 0
    """How many folders above a removed file are removed too, if they are empty."""


class KeptFile(msgspec.Struct, frozen=True, gc=False):
    """A file that was left as it is."""

    path: str
    reason: str


class Files(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind", tag="files"):
    """The call changes these files, and nothing else."""

    changes: tuple[FileChange, ...]
    is_marked: bool = False
    """The hashes are marks: they are made with a key that only this home has, so nobody can guess a content."""


class IdempotencyKey(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="key"):
    """Another system knows the call by this key."""

    key: str


class ChildSession(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session"):
    """The call begins this session."""

    session: str


Expectation = Files | IdempotencyKey | ChildSession
"""What will be there when a call has happened. Its tool plans it, and probes for it after a crash."""


Access = Literal["read", "write"]


class Resource(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that a call touches."""

    access: Access
    path: str = ""
    """A file, or a folder with everything in it: absolute, with every link followed. Empty: it may be anything."""


EVERYTHING = (Resource("write"),)
"""What a call touches if nothing more is known."""


class Touched:
    """What several calls touch. Comparing another call with all of them takes no longer if they are many."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._unread = [*resources]
        """The resources that no comparison has needed yet: most turns have only one call."""
        self._paths: dict[Access, set[str]] = {}
        self._above: dict[Access, set[str]] = {}
        """The folders above the paths, and the paths themselves."""

    def add(self, resources: Iterable[Resource]) -> None:
        """Add what another call touches."""
        self._unread += resources

    def is_in_conflict(self, resources: Iterable[Resource]) -> bool:
        """Return whether a call that touches these must wait: one writes what the other touches."""
        if self._unread:
            self._read()
        if not self._paths:
            return False
        for resource in resources:
            path = folded(resource.path)
            for access in _ACCESSES if resource.access == "write" else _ACCESSES[:1]:
                paths, above = self._paths.get(access, _NONE), self._above.get(access, _NONE)
                if path in above or not paths.isdisjoint(folders_of(path)):
                    return True
        return False

    def _read(self) -> None:
        for resource in self._unread:
            path = folded(resource.path)
            paths = self._paths.setdefault(resource.access, set())
            if path not in paths:
                paths.add(path)
                self._above.setdefault(resource.access, set()).update(folders_of(path))
        self._unread = []


_ACCESSES: tuple[Access, ...] = ("write", "read")
_NONE: frozenset[str] = frozenset()


def folded(path: str) -> str:
    """Return the path as a file system compares it that ignores case; `/` for the empty path."""
    return f"{path.rstrip('/')}/".casefold()


def folders_of(path: str) -> list[str]:
    """Return the folders above a folded path, and the path: `/`, `/a/` and `/a/b/` for `/a/b/`."""
    return [path[: place + 1] for place, char in enumerate(path) if char == "/"]


APPROVAL = "approval"
"""The gate at which an approval counts."""

CONVERTED = "converted"
"""The rule of a decision of the schema gate: the arguments were read as their only meaning, not as written."""


STRIPPED = "stripped"
"""The rule of a decision of the schema gate: arguments that the tool does not take were left out."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one gate said about a call."""

    by: str
    """The gate: schema, policy, hook, taint, rate, approval; or sandbox."""
    verdict: Literal["allow", "ask", "deny"]
    rule: str = ""
    reason: str = ""
    covers: str = ""
    """What an approval covers beside the call, for the rest of the run, as its reason says: `host:NAME`, `search`."""


def covered_by(decisions: Iterable[Decision]) -> str:
    """Return what an approval covers beside the call; empty if nothing."""
    return next((each.covers for each in decisions if each.verdict == "ask" and each.covers), "")


class Content(msgspec.Struct, frozen=True, gc=False):
    """A file whose content decides what a call does: a program, or a script."""

    path: str
    """Absolute, with every link followed."""
    mark: str
    """The SHA-256 of its content in hex; for a file that is too large or cannot be read, its size and times."""


class Reach(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call runs and names, as far as its arguments say. The person who decides sees it."""

    programs: tuple[Content, ...] = ()
    """The programs and scripts that it runs, with their content."""
    files: tuple[str, ...] = ()
    """The files and folders that it names, absolute and with every link followed."""
    hosts: tuple[str, ...] = ()
    """The hosts that it names, and those that its programs may reach."""


NO_REACH = Reach()


class Bound(msgspec.Struct, frozen=True, gc=False):
    """What an approval binds to: everything that its request shows. If anything differs, a person is asked again."""

    tool: str
    source: str
    """Where the tool comes from, as its spec says."""
    arguments: str
    workspace: str
    cwd: str
    binary: str
    reason: str
    """Why a person is asked."""
    seal: str = ""
    """A seal of the original, if the arguments are a masked copy."""
    reach: Reach = NO_REACH

    @property
    def sha256(self) -> str:
        """Return it in hex."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Offer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The narrowest grant that would cover a call."""

    rule: str
    """`shell(WORDS)` with exactly these words, `TOOL(PATH)` or `TOOL`."""
    arguments: str = ""
    """The SHA-256 of the canonical arguments, which must be the same; empty for a command, whose words are."""


class Allowed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All gates passed the call: this is what starts."""

    decisions: tuple[Decision, ...] = ()
    arguments: str = ""
    """The arguments that passed, as canonical JSON. They are run, hashed and approved, or a masked copy of these."""
    seal: str = ""
    """A seal of the original, if the arguments are a masked copy; else empty."""
    effect: Effect = "exec"
    on_interrupt: OnInterrupt = "unknown"
    timeout_s: float = 120.0
    expects: Expectation | None = None
    """What a probe looks for; None if nothing was planned."""
    source: str = ""
    """Where the tool comes from, as its spec says."""
    cwd: str = ""
    binary: str = ""
    """The resolved program, if the call runs a command."""
    reach: Reach = NO_REACH
    """Known only of a call that a gate asks about."""
    resources: tuple[Resource, ...] = EVERYTHING
    """What the call touches, as the gates found."""
    likeness: Likeness = ANY_CALL
    walled: Walled | None = None
    """The sandbox of the programs that it starts."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A person must decide about the call, or answer its question."""

    decisions: tuple[Decision, ...] = ()
    arguments: str = ""
    """Canonical JSON, as in `Allowed`."""
    source: str = ""
    seal: str = ""
    cwd: str = ""
    binary: str = ""
    reach: Reach = NO_REACH
    offer: Offer | None = None
    """The grant that an approval may make."""
    no_offer: str = ""
    """Why it may make none, as a sentence."""
    lapsed: str = ""
    """The id of a grant that would have covered the call, and has ended."""
    question: str = ""
    """The question to a person, and its options; empty if an approval is asked for."""
    options: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = EVERYTHING
    likeness: Likeness = ANY_CALL


class Refused(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A gate refused the call."""

    failure: Failure
    """The reason, in the words that the model reads."""
    decisions: tuple[Decision, ...] = ()


class Told(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All gates passed the call, and nothing has to run: the core takes what it says."""

    said: PlanUpdate | Answer
    decisions: tuple[Decision, ...] = ()
    arguments: str = ""
    """Canonical JSON, as in `Allowed`."""
    verdict: Verdict | None = None
    """Whether an answer matches the schema of its run; None without a schema."""


Admission = Allowed | Asked | Told | Refused
"""What all gates together say about a proposed call, before any effect."""


def bound(tool: str, workspace: str, admitted: Allowed | Asked) -> Bound:
    """Return what an approval of the call binds to."""
    reasons = dict.fromkeys(
        each.reason for each in admitted.decisions if each.verdict == "ask" and each.reason
    )
    return Bound(
        tool=tool,
        source=admitted.source,
        arguments=admitted.arguments,
        workspace=workspace,
        cwd=admitted.cwd,
        binary=admitted.binary,
        reason=" ".join(reasons),
        seal=admitted.seal,
        reach=admitted.reach,
    )


class BackgroundProcess(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A process that goes on after the call that started it."""

    id: str
    """The id of that call."""
    command: str = ""
    """The beginning of what runs, redacted."""
    is_over: bool = False
    """It has ended."""


CallStatus = Literal["ok", "error", "timeout", "cancelled", "unknown", "deferred"]


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of a started call as it is recorded: redacted, clipped and labelled."""

    status: CallStatus
    """`unknown`: the attempt was given up, and may still be running (a Python function cannot be killed).
    `deferred`: the call was put aside until a person has decided, and has not run."""
    text: str
    """What the model reads."""
    failure: Failure | None = None
    blob: str = ""
    """SHA-256 of the whole output, if `text` is only its head and tail."""
    output_chars: int = 0
    """The length of the whole output."""
    duration_ms: int = 0
    trust: Trust = msgspec.field(default_factory=lambda: "untrusted")
    """The trust of the text, as the tool declares it. Every record has it, because a factory's default is encoded."""
    attachments: tuple[Attachment, ...] = ()
    """Images and PDFs that belong to the result."""
    evidence: Evidence = NOTHING_SHOWN
    """What the result shows, for the guard."""
    origin: str = ""
    """Where the text comes from: the tool, and what it read where that says more; `holdfast` for the runtime."""
    is_private: bool | None = None
    """Whether it shows what is not meant for others; None: if it is `data`. With `trust`, it has the flags that a
    result brings into a session, so that of a child session brings the child's."""
    background: BackgroundProcess | None = None
    """The process in the background that the call started, or that it found to be over."""
    traffic: Traffic | None = None
    """What its programs asked of the network; None: nothing."""

    @property
    def has_failed(self) -> bool:
        """Whether the call did not come to its end. One that was put aside has not failed, and has not succeeded."""
        return self.status not in ("ok", "deferred")

    @property
    def shows_private(self) -> bool:
        return self.trust == "data" if self.is_private is None else self.is_private


HOLDFAST = "holdfast"
"""The origin of what the runtime says in place of a tool."""


def own_result(status: CallStatus, text: str, failure: Failure | None = None) -> CallResult:
    """Return what the runtime says in place of a tool. It shows nothing that anybody has read."""
    return CallResult(status, text, failure, trust="data", origin=HOLDFAST, is_private=False)
