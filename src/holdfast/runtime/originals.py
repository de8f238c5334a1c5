"""Keeps the original arguments of masked calls in the memory of this process, until their call ends.

They are never written down. A process without the original abandons the call. `masking` makes the copies.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.core.state import Call, Done, State
from holdfast.protocol.events import Record, ToolCallAbandoned, ToolCallFinished, ToolCallRefused
from holdfast.protocol.evidence import Likeness
from holdfast.protocol.failures import Failure
from holdfast.protocol.hooks import CHANGED, HOOK
from holdfast.protocol.tools import (
    CONVERTED,
    STRIPPED,
    Admission,
    Allowed,
    Asked,
    Decision,
    Expectation,
    Files,
    Reach,
    Refused,
    Resource,
    Told,
)
from holdfast.redact import Redactor
from holdfast.redact.deep import in_every_text
from holdfast.runtime.masking import Masked, masked_copy

HIDDEN = (
    "This call did not run: a text in its arguments contains JSON in which something looks like a secret. Write that "
    "JSON as a part of the arguments, not as a text."
)
HOOK_SECRET = (
    "This call did not run: a hook put what looks like a secret into its arguments, and these are stored."
)
NO_OFFER = "Its arguments contain what looks like a secret."
"""Why no grant may cover the call."""
MAX_HELD_CHARS = 64 * 1024 * 1024
"""The most characters that all originals may have together. Beyond that, the oldest are dropped."""


class Original(msgspec.Struct, frozen=True):
    """What a call is judged and run by."""

    arguments: str
    """The arguments as the model wrote them; canonical after the call passed the gates."""
    redact: Redactor
    """A redactor that also masks what the copy masks, in the gates' words about the call and in its output."""
    written: str = ""
    """The arguments as the model wrote them, if a hook changed them; else empty."""


class Originals:
    """The originals of one process, by session and call."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self._kept: dict[tuple[str, str], Original] = {}
        self._chars = 0
        self._key = secrets.token_bytes(32)

    def keep(self, session: str, call_id: str, arguments: str, copy: Masked) -> None:
        """Keep the original of a call that is about to be recorded with its copy."""
        self._put((session, call_id), Original(arguments, self._redact.also(copy.values)))

    def of(self, session: str, call: Call) -> Original | None:
        """Return what the call is judged and run by; None if it is gone."""
        if not call.is_masked:
            return Original(call.arguments, self._redact)
        return self._kept.get((session, call.call_id))

    def has(self, session: str, call_id: str) -> bool:
        """Return whether the original of this masked call is here."""
        return (session, call_id) in self._kept

    def masked(self, session: str, call: Call, original: Original, admission: Admission) -> Admission:
        """Return the gates' decision about the original in a form that may be stored.

        An approval binds to the original by a seal, an HMAC. Its key exists only in this process, so nobody can guess
        what was masked. Plain hashes of the expected changes would allow guessing, so only marks are stored.
        """
        if not call.is_masked:
            return self._unhidden(admission) if _is_converted(admission) else admission
        if isinstance(admission, Refused | Told):  # a call that tells something was judged by its masked copy
            return in_every_text(original.redact, admission)
        arguments = admission.arguments
        copy = masked_copy(arguments, original.redact)
        if _is_converted(admission):  # text that became JSON may show more secrets
            original = replace(original, redact=original.redact.also(copy.values))
        seal = hmac.new(self._key, arguments.encode(), hashlib.sha256).hexdigest()
        safe = in_every_text(original.redact, replace(admission, arguments=""))
        safe = replace(
            safe,
            arguments=copy.text,
            seal=seal,
            resources=tuple(map(_told, admission.resources, safe.resources)),
            likeness=self._sealed(admission.likeness),
            reach=_reached(admission.reach, safe.reach),
        )
        if isinstance(safe, Asked):
            return replace(safe, offer=None, no_offer=NO_OFFER)
        if (session, call.call_id) in self._kept:  # otherwise it ended meanwhile
            written = original.written or original.arguments
            is_changed = any(map(_is_change, admission.decisions))
            kept = replace(original, arguments=arguments, written=written if is_changed else "")
            self._put((session, call.call_id), kept)
        expects = _untelling(admission.expects, original.redact) if isinstance(admission, Allowed) else None
        can_probe = expects is not None or safe.on_interrupt != "probe"
        return replace(safe, expects=expects, on_interrupt=safe.on_interrupt if can_probe else "unknown")

    def _sealed(self, likeness: Likeness) -> Likeness:
        """Return what makes calls the same, without a plain hash of their arguments."""
        digest, place = self._seal(likeness.digest), self._seal(likeness.place)
        return Likeness(digest, place, likeness.only_looks)

    def _seal(self, digest: str) -> str:
        return digest and hmac.new(self._key, digest.encode(), hashlib.sha256).hexdigest()[: len(digest)]

    def _unhidden(self, admission: Admission) -> Admission:
        """Refuse a call whose conversion shows a secret: what the model wrote is stored already, and hid it."""
        if isinstance(admission, Refused):
            return in_every_text(self._redact, admission)
        if not masked_copy(admission.arguments, self._redact).values:
            return admission
        if change := next(filter(_is_change, admission.decisions), None):
            denial = replace(change, verdict="deny", reason=HOOK_SECRET)
            return Refused(Failure("policy_denied", HOOK_SECRET), (*admission.decisions, denial))
        return Refused(Failure("tool_validation", HIDDEN), (Decision("schema", "deny", CONVERTED),))

    def note(self, session: str, batch: Iterable[Record]) -> None:
        """Drop the originals of calls that ended with a committed record."""
        if self._kept:
            for record in batch:
                match record.event:
                    case ToolCallFinished() | ToolCallRefused() | ToolCallAbandoned() as ended:
                        self._drop((session, ended.call_id))

    def keep_open(self, state: State) -> None:
        """Drop the originals of a session beside its open calls: nobody drives it now."""
        open_calls = {call.call_id for call in state.turn.calls if not isinstance(call.stage, Done)}
        for key in [key for key in self._kept if key[0] == state.session and key[1] not in open_calls]:
            self._drop(key)

    def _put(self, key: tuple[str, str], original: Original) -> None:
        self._drop(key)
        self._kept[key] = original
        self._chars += _length(original)
        while self._chars > MAX_HELD_CHARS:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, str]) -> None:
        original = self._kept.pop(key, None)
        if original is not None:
            self._chars -= _length(original)


def _length(original: Original) -> int:
    return len(original.arguments) + len(original.written)


def _is_converted(admission: Admission) -> bool:
    """Return whether other arguments run than the model wrote."""
    return bool(
        [each for each in admission.decisions if each.rule in (CONVERTED, STRIPPED) or _is_change(each)]
    )


def _is_change(decision: Decision) -> bool:
    return decision.by == HOOK and decision.reason == CHANGED


def _told(found: Resource, safe: Resource) -> Resource:
    """Return resources without masked paths: two of those cannot be told apart."""
    return found if safe == found else Resource(found.access)


def _reached(found: Reach, safe: Reach) -> Reach:
    """Return what the call reaches with the marks of contents, which tell no secret, wherever no path was masked."""
    programs = [
        one if one.path == other.path else replace(other, mark="")
        for one, other in zip(found.programs, safe.programs, strict=True)
    ]
    return replace(safe, programs=tuple(programs))


def _untelling(expects: Expectation | None, redact: Redactor) -> Files | None:
    """Return the changes that a masked call expects, if nothing in them tells or helps to guess the secret."""
    if not isinstance(expects, Files) or not expects.is_marked:
        return None
    return expects if all(redact(each.path) == each.path for each in expects.changes) else None
