"""Derives the lines of the ledger from the records that end attempts of model calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.state import NO_EPOCH, ModelCall
from holdfast.protocol import events as e
from holdfast.protocol.spending import LAST_PASS, LOST, Amounts, Line

_Ended = e.Responded | e.ModelCallFailed | e.ModelCallCut | e.ModelCallAbandoned | e.SideCallEnded

_FREEING = (*_Ended.__args__, e.RunStopped, e.Attached)


def lines(open_calls: Iterable[ModelCall], batch: Iterable[e.Record]) -> Iterator[Line]:
    """Yield the lines of a batch of records. What cost nothing has none.

    Args:
        open_calls: The attempts that were open before it: an intent is always committed before its outcome.
        batch: The records of one session.
    """
    for record in batch:
        ended = record.event
        if not isinstance(ended, _Ended):
            continue
        for model_call in open_calls:
            # A branch gives up what its parent had in flight: that is in the parent's lines.
            if model_call.key == ended.key and model_call.epoch != NO_EPOCH:
                amounts = _amounts(model_call, ended)
                if amounts != Amounts():
                    yield Line(
                        record.session,
                        model_call.key,
                        model_call.begun_ms,
                        model_call.user,
                        model_call.facts.name,
                        _purpose(model_call, ended),
                        amounts,
                    )


def frees(batch: Iterable[e.Record]) -> bool:
    """Return whether money that was reserved is free after a batch: an attempt or a run has ended, or another driver
    has come, who knows which attempts were recorded."""
    return any(isinstance(record.event, _FREEING) for record in batch)


def _amounts(model_call: ModelCall, ended: _Ended) -> Amounts:
    if isinstance(ended, e.ModelCallAbandoned):
        return Amounts(held=model_call.reserved_microusd)
    return Amounts(ended.cost_microusd, ended.cost_microusd if ended.estimated else 0)


def _purpose(model_call: ModelCall, ended: _Ended) -> str:
    is_answered = isinstance(ended, e.Responded | e.ModelCallAbandoned) or (
        isinstance(ended, e.SideCallEnded) and ended.status == "responded"
    )
    if not is_answered:
        return LOST
    return LAST_PASS if model_call.is_last_pass else model_call.purpose
