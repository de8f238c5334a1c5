"""Failures as data: what went wrong in an attempt, for the model, for the user and for the journal.

`errors` has the exceptions that end a command. A Failure is never raised inside the runtime.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FailureCode = Literal[
    "provider_transient",
    "provider_fatal",
    "provider_refused",
    "provider_unready",
    "rate_limited",
    "context_overflow",
    "unknown_tool",
    "invalid_json",
    "tool_validation",
    "tool_execution",
    "tool_timeout",
    "policy_denied",
    "failed_before",
    "budget_exhausted",
    "cancelled",
    "storage",
]
"""`provider_refused`: the key or account was refused (401, 402, 403), and waiting does not help. `provider_unready`:
no request was possible: no key, no such provider.
"""

FailureClass = Literal["unknown_tool", "invalid_json", "schema", "timeout", "policy_denied", "execution"]
"""What can be wrong with a tool call, as `[repair]` in the configuration names it."""

CLASSES: dict[str, FailureClass] = {
    "unknown_tool": "unknown_tool",
    "invalid_json": "invalid_json",
    "tool_validation": "schema",
    "tool_timeout": "timeout",
    "policy_denied": "policy_denied",
    "tool_execution": "execution",
}
"""The class of a failure. Other failures say nothing about how the model calls tools."""

SAID_CHARS = 500

LONGEST_WAIT_S = 86_400.0
"""However long a server asks to wait, it is asked again after a day."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that went wrong, in words for each reader."""

    code: FailureCode
    message: str
    """A safe sentence: what happened and what to do. The model reads it, and a user may."""
    detail: str = ""
    """Details for the journal and the log: status, excerpt of the body, end of a traceback. Redacted and clipped."""
    said: str = ""
    """What the provider itself said about it: redacted, on one line, at most `SAID_CHARS`."""
    retry_after_s: float | None = None
    """How long the server asks to wait. More than `LONGEST_WAIT_S` counts as that."""
    is_of_request: bool = False
    """It may pass, and says nothing about the service: another request would be answered."""
    has_other_key: bool = False
    """Another key of the provider can be used at once."""
    tokens: int = 0
    """The window or size in tokens that the provider named in a context_overflow; 0 if it named none."""


def in_full(failure: Failure) -> str:
    """Return what happened, what to do, and what the provider said."""
    if not failure.said:
        return failure.message
    end = "" if failure.said.endswith((".", "!", "?", "…")) else "."
    return f"{failure.message} It said: {failure.said}{end}"


RETRYABLE: frozenset[str] = frozenset({"provider_transient", "rate_limited"})
"""Failures of a model call that may pass by themselves."""
