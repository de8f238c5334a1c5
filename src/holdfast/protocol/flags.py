"""The two flags of a session, folded from its records: what the model may have read by now.

They follow from records that are there anyway, so they survive whatever keeps the journal: a cut of the view, a
snapshot, a fork, a crash.
"""

from __future__ import annotations

from holdfast.protocol import events as e
from holdfast.protocol.trust import FLAGS, Flag, Mark, Taint


def flags_after(taint: Taint, seq: int, event: e.Event) -> Taint:
    """Return the flags after a record. The first record that sets a flag stays its mark."""
    untrusted, private = taint.untrusted, taint.private
    if untrusted is not None and private is not None:
        return taint
    origin, is_untrusted, is_private = _brought(event)
    if is_untrusted and untrusted is None:
        untrusted = Mark(seq, origin)
    if is_private and private is None:
        private = Mark(seq, origin)
    is_same = untrusted is taint.untrusted and private is taint.private
    return taint if is_same else Taint(untrusted, private)


def set_by(before: Taint, now: Taint) -> tuple[Flag, ...]:
    """Return the flags that are set now and were not before."""
    return tuple([flag for flag in FLAGS if getattr(now, flag) is not None and getattr(before, flag) is None])


def _brought(event: e.Event) -> tuple[str, bool, bool]:
    """Return where what an event brings comes from, and whether that is untrusted and private."""
    match event:
        case e.ToolCallFinished(result=result):
            return result.origin, result.trust == "untrusted", result.shows_private
        case e.MessageReceived(attachments=attachments):  # what a person attached is not private
            names = [each.name or each.origin for each in attachments if each.trust == "untrusted"]
            return names[0] if names else "", bool(names), False
        case e.PromptBuilt(sections=sections):
            names = [each.source for each in sections if each.trust == "untrusted"]
            return names[0] if names else "", bool(names), False
        case _:
            return "", False, False
