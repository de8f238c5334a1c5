"""What a tool declares about itself, what a gate decides about a call, and what a call comes to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from holdfast.protocol.failures import Failure
from holdfast.protocol.trust import Trust

Effect = Literal["read", "write", "exec", "network", "ask"]
"""`ask` is a question to a person: it has no effect on the world, and a person's answer is its result."""

OnInterrupt = Literal["rerun", "probe", "unknown"]
"""What may be done when a call's outcome is unknown after a crash: run it again, look whether it happened,
or neither (the model is told that the outcome is unknown)."""


ParameterKind = Literal["path", "command", "url", "timeout"]
"""What an argument means to the gates. `path`: a file or folder, as the workspace sees it. `command`: text for a
shell. `url`: an address. `timeout`: the seconds that this call may take, in place of the tool's own."""


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
    """It ends by itself at its limits and says what it did until then; any other is cancelled there."""
    max_output_chars: int = 24_000
    """What the model sees of one result; the whole is kept as a blob."""
    source: str = "foreign"
    """Who made it: `builtin` (it comes with Holdfast), `function` (it belongs to the program), else `foreign`."""
    trust: Trust = "untrusted"
    """How far what it answers may be trusted."""
    kinds: dict[str, ParameterKind] = {}
    """The parameters that mean something to the gates, by name. The gates look at these and at no others; every
    text inside such an argument counts as one path, command or URL."""


class FileChange(msgspec.Struct, frozen=True, gc=False):
    """A file that a call is about to change."""

    path: str
    """Relative to the workspace."""
    before: str
    """SHA-256 of the content in hex; empty when there is no file."""
    after: str


class Files(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="files"):
    """The call changes these files, and nothing else."""

    changes: tuple[FileChange, ...]


class IdempotencyKey(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="key"):
    """Somebody outside knows the call by this key."""

    key: str


class ChildSession(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session"):
    """The call begins this session."""

    session: str


Expectation = Files | IdempotencyKey | ChildSession
"""What will be there when a call has happened. Its tool planned it, and looks for it after a crash."""


class Resource(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that a call touches."""

    access: Literal["read", "write"]
    path: str = ""
    """A file, or a folder with all that lies in it: absolute, every link followed. Empty: it may be anything."""


EVERYTHING = (Resource("write"),)
"""What a call touches of which no more is known."""


class Touched:
    """What several calls touch. To compare another call with all of them takes no longer when they are many."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._above_read: set[str] = set()
        self._above_written: set[str] = set()
        """The folders above the paths, and the paths themselves."""
        self.add(resources)

    def add(self, resources: Iterable[Resource]) -> None:
        """Another call touches these."""
        for resource in resources:
            path = _folded(resource.path)
            paths, above = (
                (self._read, self._above_read)
                if resource.access == "read"
                else (self._written, self._above_written)
            )
            if path not in paths:
                paths.add(path)
                above.update(_above(path))

    def is_in_conflict(self, resources: Iterable[Resource]) -> bool:
        """Whether a call that touches these must not run beside the others: one writes what the other touches."""
        if not self._read and not self._written:
            return False
        for resource in resources:
            path = _folded(resource.path)
            if path in self._above_written or not self._written.isdisjoint(_above(path)):
                return True
            if resource.access == "write" and (
                path in self._above_read or not self._read.isdisjoint(_above(path))
            ):
                return True
        return False


def _folded(path: str) -> str:
    """The path as a file system would compare it that ignores letter case; `/` for the empty path."""
    return f"{path.rstrip('/')}/".casefold()


def _above(path: str) -> list[str]:
    """The folders above a folded path, and the path: `/`, `/a/` and `/a/b/` for `/a/b/`."""
    return [path[: place + 1] for place, char in enumerate(path) if char == "/"]


APPROVAL = "approval"
"""The gate at which a person's yes counts."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one gate said about a call."""

    by: str
    """The gate: schema, policy, hook, taint, rate, approval."""
    verdict: Literal["allow", "ask", "deny"]
    rule: str = ""
    reason: str = ""


class Bound(msgspec.Struct, frozen=True, gc=False):
    """What an approval binds to: all that its request shows. Where anything differs, a person is asked again."""

    tool: str
    source: str
    """Of the tool, as in its spec."""
    arguments: str
    workspace: str
    cwd: str
    binary: str
    reason: str
    """Why a person is asked."""
    seal: str = ""
    """Stands for the original where the arguments are a masked copy."""

    @property
    def sha256(self) -> str:
        """In hex."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Allowed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All gates let the call pass: this is what starts."""

    decisions: tuple[Decision, ...] = ()
    arguments: str = ""
    """The arguments that passed: canonical JSON. They are what is run, hashed and approved, unless this is a masked
    copy of them."""
    seal: str = ""
    """Stands for the original of a masked copy; empty where the arguments are the original."""
    effect: Effect = "exec"
    on_interrupt: OnInterrupt = "unknown"
    timeout_s: float = 120.0
    expects: Expectation | None = None
    """For a look at whether it happened; None: nothing was planned."""
    source: str = ""
    """Of the tool, as in its spec."""
    cwd: str = ""
    binary: str = ""
    """Of a command: the resolved program."""
    resources: tuple[Resource, ...] = EVERYTHING
    """What it touches, as the gates found it out."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A person has to decide about the call, or to answer its question."""

    decisions: tuple[Decision, ...] = ()
    arguments: str = ""
    """Canonical JSON, as in `Allowed`."""
    source: str = ""
    seal: str = ""
    cwd: str = ""
    binary: str = ""
    question: str = ""
    """What a person is asked, and the options offered; empty where a permission is asked for."""
    options: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = EVERYTHING


class Refused(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A gate refused the call."""

    failure: Failure
    """What the model is told."""
    decisions: tuple[Decision, ...] = ()


Admission = Allowed | Asked | Refused
"""What all gates together say about a proposed call, before any effect."""


def bound(tool: str, workspace: str, admitted: Allowed | Asked) -> Bound:
    """What an approval of the call binds to."""
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
    )


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a started call came to, as it is recorded: redacted, clipped and labelled already."""

    status: Literal["ok", "error", "timeout", "cancelled", "unknown"]
    """`unknown`: the attempt was given up while it may still be at work (a Python function can't be
    killed)."""
    text: str
    """What the model reads."""
    failure: Failure | None = None
    blob: str = ""
    """SHA-256 of the whole output when `text` is only its head and tail."""
    output_chars: int = 0
    """The length of the whole output."""
    duration_ms: int = 0
    trust: Trust = "untrusted"
    """How far the text may be trusted, as the tool declares it."""
