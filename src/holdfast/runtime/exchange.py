"""Asks whether a call may go out now, by circuits and rates, and says how it ended.

All sessions of a home share what is known (`protocol.services`), and `core.outgoing` decides. A provider may have
several keys: one that has to wait, or was refused, gives way to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.circuits import verdict_of
from holdfast.core.state import State
from holdfast.protocol.budgets import Claim, Claimed
from holdfast.protocol.circuits import CallEnded, Caller, CircuitState, Later
from holdfast.protocol.failures import Failure, FailureCode, in_full
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.outcomes import AttemptResult, CircuitMet, ModelFailure, Unready
from holdfast.protocol.outside import Outside
from holdfast.protocol.rates import Draw, Rate
from holdfast.protocol.services import FREE, Answer, Outgoing
from holdfast.runtime.ports import Ports

REFUSED_MS = 300_000
"""A key that was refused is not used for this time, as long as there is another one."""
MARGIN_MS = 5_000
"""How much longer than its limit a call counts as in progress: its end has to be recorded."""
REASON_CHARS = 300
_OF_RATES = frozenset({"requests", "tokens", "concurrent"})
_LIMITS = {
    "requests": "as many calls as requests_per_minute allows",
    "tokens": "as many tokens as tokens_per_minute allows",
    "concurrent": "as many calls at a time as concurrent allows",
}


class Left(NamedTuple):
    """A call that may go out."""

    circuit: str
    """Empty: none counts."""
    which: int
    """The place of its key among those of the provider."""
    is_noted: bool
    """The store has noted something about it, which its end changes."""
    insists: bool = False
    """A person wanted it now."""


class Cleared(NamedTuple):
    """Whether a call may go out."""

    later: Later | None = None
    """Why no key may be used now."""
    met: CircuitMet | None = None
    """A circuit that is not as the session last met it."""
    claimed: Claimed | None = None
    """The answer to its claim."""

    @property
    def claim(self) -> Claimed:
        """The answer to its claim, if it made one and may go out."""
        assert self.claimed is not None
        return self.claimed

    def refusal(self, model: ModelFacts, now_ms: int) -> CircuitMet | Unready | None:
        """Return what is to be recorded before the call is prepared again; None if it may go out."""
        if self.met is not None or self.later is None:
            return self.met
        return held_back(self.later, model, now_ms)


class Exchange:
    """The calls of one session under one lease."""

    def __init__(self, ports: Ports, session: str, epoch: int) -> None:
        self.session = session
        self._ports = ports
        self._epoch = epoch
        self._left: dict[str, Left] = {}
        """By the key of the attempt, what may go out or is out."""

    def counts(self, model: ModelFacts) -> bool:
        """Return whether anything is asked about calls to a model."""
        return self._ports.rate is not None or bool(self._ports.routes(model.name))

    async def ask(
        self, key: str, state: State, model: ModelFacts, tokens: int, claim: Claim | None = None
    ) -> Cleared:
        """Return whether a model call may go out, with the first key that lets it. A claim reserves its money in the
        same transaction.

        Args:
            key: The key of the attempt. It may ask again.
            tokens: How many it is expected to take.
        """
        assert state.settings is not None
        limit_ms = int(state.settings.limits.request_s * 1000) + MARGIN_MS
        draw = Draw(Caller(self.session, key, self._epoch), tokens, limit_ms, self._rates(state, model))
        asked: list[tuple[str, Answer]] = []
        laters: list[Later] = []
        for which, circuit in self._usable(model):
            outgoing = Outgoing(circuit, draw, self._ports.circuits, state.models.insists)
            answer = await self._answer(outgoing, claim)
            asked.append((circuit, answer))
            if answer.later is None:
                is_noted = answer.has_failed or bool(draw.rates)
                self._left[key] = Left(circuit, which, is_noted, state.models.insists)
                return Cleared(None, _met(state.models.circuits, asked), answer.claimed)
            laters.append(answer.later)
            if answer.later.why in _OF_RATES:  # no other key would change that
                break
        later = min(laters, key=lambda each: each.wait_ms)
        return Cleared(later, _met(state.models.circuits, asked))

    async def _answer(self, outgoing: Outgoing, claim: Claim | None) -> Answer:
        store = self._ports.store
        if outgoing.circuit or outgoing.draw.rates:
            return await store.may_call(outgoing, claim)
        return FREE if claim is None else Answer(claimed=await store.reserve(claim))

    async def turn(self, key: str, tool: str, timeout_s: float) -> None:
        """Wait until a call of a tool may begin, by the rate of the tool."""
        name = f"tool:{tool}"
        rate = self._ports.rate(name) if self._ports.rate is not None else None
        if rate is None:
            return
        limit_ms = int(timeout_s * 1000) + MARGIN_MS
        draw = Draw(Caller(self.session, key, self._epoch), 0, limit_ms, ((name, rate),))
        answer = await self._ports.store.may_call(Outgoing("", draw))
        while answer.later is not None:
            await asyncio.sleep(answer.later.wait_ms / 1000)
            answer = await self._ports.store.may_call(Outgoing("", draw))
        self._left[key] = Left("", 0, is_noted=True)

    def outside(self, key: str) -> Outside:
        """Return what a call of a tool asks about services."""
        caller = Caller(self.session, key, self._epoch)
        return Outside(self._ports.store, caller, self._ports.circuits)

    def which(self, key: str) -> int:
        """Return the place of the key that an attempt uses."""
        return self._left[key].which if key in self._left else 0

    def refused(self, key: str, model: ModelFacts, failure: Failure) -> Failure:
        """Return the failure of an attempt; if its key was refused or has to wait, with whether there is another."""
        routes = self._ports.routes(model.name)
        if len(routes) < 2 or key not in self._left:
            return failure
        if failure.code == "provider_refused":
            self._ports.refused[self._left[key].circuit] = self._ports.clock.uptime_ms() + REFUSED_MS
        elif failure.code != "rate_limited" or not failure.retry_after_s:
            return failure
        others = [each for each in routes if each != self._left[key].circuit and not self._is_refused(each)]
        return replace(failure, has_other_key=True) if others else failure

    def ended(self, key: str, result: AttemptResult) -> CallEnded | None:
        """Return what the end of an attempt says about its service; None if nothing was asked about it."""
        left = self._left.pop(key, None)
        if left is None:
            return None
        quiet_s, reason, used = 0.0, "", None
        if isinstance(result, ModelFailure):
            quiet_s, reason = result.quiet_s, in_full(result.failure)[:REASON_CHARS]
        elif isinstance(result, ModelReply):
            quiet_s = result.quiet_s
            reason = "A limit of the service is used up." if quiet_s else ""
            used = result.usage.total_tokens if not result.estimated else None
        verdict = verdict_of(result) if left.circuit else "neither"
        quiet_ms = int(quiet_s * 1000) if left.circuit else 0
        # The usual call works, as those before it did. If another one fails meanwhile, the next success clears that.
        if not (left.is_noted or quiet_ms or verdict == "fails"):
            return None
        caller = Caller(self.session, key, self._epoch)
        said = (verdict, quiet_ms, reason, left.insists, used, self._ports.circuits)
        return CallEnded(caller, left.circuit, *said)

    def _usable(self, model: ModelFacts) -> Sequence[tuple[int, str]]:
        """Return the circuits of the keys in their order, without refused keys; all if all are refused."""
        routes = [*enumerate(self._ports.routes(model.name))]
        return [each for each in routes if not self._is_refused(each[1])] or routes or [(0, "")]

    def _is_refused(self, circuit: str) -> bool:
        return self._ports.refused.get(circuit, 0) > self._ports.clock.uptime_ms()

    def _rates(self, state: State, model: ModelFacts) -> tuple[tuple[str, Rate], ...]:
        rate = self._ports.rate
        if rate is None:
            return ()
        user, session = f"user:{state.principal.name}", f"session:{state.key or state.session}"
        found = [(name, rate(name)) for name in (model.name, user, session, "home")]
        return tuple([(name, each) for name, each in found if each is not None])


def held_back(later: Later, model: ModelFacts, now_ms: int) -> Unready:
    """Return the wait of a model call that may not go out now."""
    return Unready(Failure(_code(later), _told(later, model)), now_ms + later.wait_ms, later.name)


def _code(later: Later) -> FailureCode:
    return "provider_transient" if later.why in ("open", "probing") else "rate_limited"


def _told(later: Later, model: ModelFacts) -> str:
    last = f" It was: {later.reason}" if later.reason else ""
    match later.why:
        case "open":
            return f"{model.name} failed several times in a row, so nobody calls it for a while.{last}"
        case "probing":
            return f"{model.name} failed several times in a row. One call finds out whether it is back.{last}"
        case "asked":
            return f"{model.name} wants no further calls for a while.{last}"
        case "requests" | "tokens" | "concurrent":
            return f"{later.name} has {_LIMITS[later.why]} in [rates]; this call waits for its turn."


def _met(known: dict[str, CircuitState], asked: Sequence[tuple[str, Answer]]) -> CircuitMet | None:
    """Return the first circuit that is not as it was."""
    for circuit, answer in asked:
        if circuit and known.get(circuit, "closed") != answer.state:
            reason = answer.reason if answer.state != "closed" else ""
            return CircuitMet(circuit, answer.state, reason)
    return None
