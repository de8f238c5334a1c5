"""Failures as data: what went wrong in an attempt, for the model, for the user and for the journal.

The exceptions that end a command live in `errors`; a Failure never travels as one inside the runtime.
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
    "tool_validation",
    "tool_execution",
    "tool_timeout",
    "policy_denied",
    "budget_exhausted",
    "cancelled",
    "storage",
]
"""`provider_refused`: the key or account was refused (401, 402, 403); waiting does not help. `provider_unready`: a
request could not even be made: no key, no such provider."""


LONGEST_WAIT_S = 86_400.0
"""However long the other side asks to be left alone: after a day it is asked again."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that went wrong, in words for each reader."""

    code: FailureCode
    message: str
    """A safe sentence: what happened and what to do about it. The model reads it, a user may."""
    detail: str = ""
    """For the journal and the log: status, body excerpt, end of a traceback. Redacted and clipped."""
    retry_after_s: float | None = None
    """How long the other side asked to be left alone; more than `LONGEST_WAIT_S` counts as that."""
    tokens: int = 0
    """With context_overflow: the window or size in tokens that the provider named, 0 when it named none."""


RETRYABLE: frozenset[str] = frozenset({"provider_transient", "rate_limited"})
"""Failures of a model call that may pass by themselves."""
