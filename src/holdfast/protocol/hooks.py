"""Hooks: programs and functions of the user that Holdfast asks or tells at certain moments, and what they answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import msgspec

from holdfast.protocol.allowed import WrongEntry
from holdfast.protocol.rules import Layer

HookEvent = Literal[
    "before_tool", "after_tool", "before_model", "after_model", "turn_end", "run_start", "run_end",
    "before_compaction", "approval",
]  # fmt: skip
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
DECIDED: frozenset[HookEvent] = frozenset(("before_tool", "run_start", "before_model", "before_compaction"))
"""Where the answer of a hook decides. Of all other events a hook only hears."""
OnFailure = Literal["deny", "allow"]

ENTRY_POINT = r"[A-Za-z0-9._-]{1,128}"
"""The names by which packages offer something."""
HOOK = "hook"
"""The gate at which hooks are asked about a call."""
CHANGED = "It changed the arguments."
"""The reason of a decision about arguments that a hook changed."""
NO_HOOKS = "this process has no hooks"
REASON_CHARS = 2_000
"""The most characters of a hook's reason that are kept."""
ROUNDS = 3
"""How often the hooks of a call are gone through, as long as one of them changes the arguments."""
ENDING_S = 5.0
"""How long it may take to start a hook and to end its processes, beside its own time limit."""


class Hook(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When a hook is asked. What it runs is not stored: nothing that a journal says is ever run as a hook."""

    name: str
    on: tuple[HookEvent, ...]
    tools: tuple[str, ...] = ("*",)
    """Globs: the tools whose calls it sees."""
    timeout_s: float = 5.0
    on_failure: OnFailure = "deny"
    """What counts if it is late, fails or gives no valid answer."""
    layer: Layer = "user"
    digest: str = ""
    """The SHA-256 of what it runs. A process whose hook of this name runs something else does not run it."""

    files: tuple[str, ...] = ()
    """The files of its command that exist, absolute and with every link followed. No tool may change them."""

    @property
    def rule(self) -> str:
        """How decisions name it."""
        return f"hook:{self.name}"


class HookSource(msgspec.Struct, frozen=True):
    """A hook, and what it runs in this process."""

    hook: Hook
    command: tuple[str, ...] = ()
    """The program and its arguments."""
    python: str = ""
    """The function of a package, by the name of its entry point, instead of a program."""
    origin: str = ""
    """Where the configuration names it."""


def digest_of(command: Sequence[str], python: str = "") -> str:
    """Return the SHA-256 of what a hook runs."""
    return hashlib.sha256(msgspec.json.encode([*command] if command else python)).hexdigest()


class Occasion(msgspec.Struct, frozen=True):
    """What a hook is asked about, or told."""

    event: HookEvent
    session: str
    workspace: str
    key: str
    """The processes of the hook have this key in their environment."""
    facts: dict[str, Any] = {}
    """More about the event, as the hook reads it."""


class HookAnswer(msgspec.Struct, frozen=True):
    """What a hook said. `on_failure` is applied already."""

    verdict: Literal["", "deny", "ask"] = ""
    reason: str = ""
    """Redacted and bounded."""
    arguments: dict[str, Any] | None = None
    """Other arguments for the call."""
    is_failure: bool = False
    """It gave no valid answer: `on_failure` is applied to the verdict."""
    is_cut: bool = False
    """It was cancelled, so this says nothing."""


def failure_of(hook: Hook, why: str) -> HookAnswer:
    """Return what counts as the answer of a hook that failed.

    Args:
        hook: The hook.
        why: What happened, as the end of a sentence.
    """
    if hook.on_failure == "deny":
        return HookAnswer("deny", f"the hook failed: {why}.", is_failure=True)
    return HookAnswer("", f"The hook failed: {why}. Its on_failure is allow.", is_failure=True)


def entry_point_of(text: str) -> str:
    """Return the name of an entry point.

    Raises:
        WrongEntry: it cannot be one.
    """
    if not re.fullmatch(ENTRY_POINT, text):
        raise WrongEntry("is not the name of an entry point")
    return text


def hooks_on(event: HookEvent, hooks: Iterable[Hook], tool: str = "") -> list[Hook]:
    """Return the hooks for an event, in order; for an event of a tool call, only those for this tool."""
    return [each for each in hooks if event in each.on and (not tool or _is_for(each, tool))]


def _is_for(hook: Hook, tool: str) -> bool:
    return any(fnmatchcase(tool, glob) for glob in hook.tools)


def longest_s(hooks: Iterable[Hook]) -> float:
    """Return how long it may take to ask these hooks about a call."""
    return ROUNDS * sum(each.timeout_s + ENDING_S for each in hooks)
