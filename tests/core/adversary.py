"""A provider that is not to be trusted with money: it counts by a tokenizer of its own, breaks off, reports late, in
part or not at all, and lies if it is allowed to. It plays against a session that knows only what arrives.

Which way things go is a list of numbers, so that a failure shrinks to a short story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from holdfast.core import budget
from holdfast.core.budget import Grant
from holdfast.core.causes import Outcome
from holdfast.core.measure import MOST_BYTES_PER_TOKEN, OVERHEAD_TOKENS
from holdfast.core.state import State, next_key, open_run, phase
from holdfast.core.totals import Totals
from holdfast.protocol.failures import Failure
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import ModelFacts, Tier, cost_microusd
from holdfast.protocol.messages import Estimated, ModelReply, Text, Usage
from holdfast.protocol.outcomes import ModelCut, ModelFailure, ModelResult, Unaffordable
from tests.core.stories import Story, call, opened, request

T = TypeVar("T")
AROUND_BYTES = 200
"""What may stand around an answer where it is read again."""
MISSING: tuple[Estimated, ...] = (("input", "output"), ("input",), ("output",))
LIES = (0, 1, 7, 90, 800, 7_000, 60_000, 999_999_999)


class Dice:
    """The numbers, one after the other, and zeros behind them."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[next(self._numbers, 0) % len(options)]

    def upto(self, most: int) -> int:
        """From 0 up to that; both ends come often."""
        number = next(self._numbers, 0)
        return (0, most, number % (most + 1), number % (most + 1))[number % 4]


class Piece(NamedTuple):
    """A part of the conversation."""

    size_bytes: int
    tokens: int
    """As the provider counts it; no token is smaller than a byte."""


def a_piece(dice: Dice, most_bytes: int) -> Piece:
    """Return a piece of any size and density."""
    size_bytes = dice.upto(most_bytes)
    return Piece(size_bytes, dice.upto(size_bytes))


def a_model(dice: Dice) -> ModelFacts:
    """Return a model with any prices up to 200 dollars per million tokens, which may change with a call's size."""

    def prices() -> list[int]:
        return [dice.pick((1_000_000, 15_000_000, 0, dice.upto(200_000_000))) for _ in range(4)]

    sizes = sorted({dice.pick((0, 500, 4_000, 20_000, 100_000)) for _ in range(2)} - {0})
    return ModelFacts(
        "openai",
        "m",
        dice.pick((128_000, 1_000_000, 128_000, 8_192)),
        dice.pick((0, 512, 8_192)),
        *prices(),
        tiers=tuple(Tier(size, *prices()) for size in sizes),
    )


def afford(state: State, size_bytes: int, fresh_bytes: int, *, is_last_pass: bool) -> Grant | Unaffordable:
    """Return what a request of prose may cost."""
    return budget.afford(state, size_bytes, fresh_bytes, Kinds(prose=size_bytes), is_last_pass=is_last_pass)


def reserve(story: Story, size_bytes: int, fresh_bytes: int) -> Grant | Unaffordable:
    """Prepare the next request as the engine does."""
    run = open_run(story.state)
    assert run is not None
    grant = afford(story.state, size_bytes, fresh_bytes, is_last_pass=bool(run.landing))
    key = next_key(story.state)
    if isinstance(grant, Unaffordable):
        story.found(key, grant)
    else:
        reserved = request(
            size_bytes=size_bytes,
            fresh_bytes=fresh_bytes,
            kinds=Kinds(prose=size_bytes),
            expected_tokens=grant.expected_tokens,
            output_cap_tokens=grant.output_cap_tokens,
            reserved_tokens=grant.reserved_tokens,
            reserved_microusd=grant.reserved_microusd,
        )
        story.found(key, reserved)
    return grant


class Game:
    """One session against the provider."""

    def __init__(self, dice: Dice, *, may_lie: bool) -> None:
        self.dice = dice
        self.may_lie = may_lie
        limits = {
            "cost_microusd": dice.pick((10**8, 10**7, 10**6, 10**5, 10**4)) + dice.upto(10**5),
            "tokens": dice.pick((3 * 10**6, 10**6, 10**5, 10**4)) + dice.upto(10**4),
        }
        self.story = opened(facts=a_model(dice), turns=50, model_attempts=99, **limits)
        self.granted = 0
        self._sent: list[Piece] = []
        self._new = [Piece(50, dice.upto(50)), a_piece(dice, 9_000), a_piece(dice, 1_000)]
        self._held = (0, 0)
        self._truth = Usage()

    @property
    def totals(self) -> Totals:
        return self.story.run.totals

    def play(self, rounds: int) -> None:
        """Until the run ends, or so many requests were made."""
        for _ in range(rounds):
            if open_run(self.story.state) is None:
                break
            if phase(self.story.state) == "backing_off":
                self.story.due("retry")
            if self.ask():
                self.dice.pick(self._moves())()
                self._check()
        assert (self.totals.held_microusd, self.totals.held_tokens) == self._held, (
            "only crashes hold anything"
        )

    def ask(self) -> bool:
        """The next request; whether it could be paid."""
        view = self._sent
        if len(view) > 2 and self.dice.pick((False, False, True)):  # the window is full: a view is cut
            view = view[:2] + view[2 + self.dice.upto(len(view) - 2) :]
        size, fresh = _size(view + self._new), _size(self._new)
        grant = reserve(self.story, size, fresh)
        self._check()
        if isinstance(grant, Unaffordable):
            return False
        self.granted += 1
        self._sent, self._new = view + self._new, []
        return True

    # --- what the provider does -----------------------------------------------------------------

    def _moves(self) -> list[Callable[[], None]]:
        return [
            self.answer,
            self.answer,
            self.answer,
            self._mute,
            self._break,
            self._refuse,
            self._cut,
            self._crash,
        ]

    def answer(self) -> None:
        """A whole response, counted by the tokenizer, or as a lie says."""
        counted = self._counted()
        self._settle(self._reply(counted), counted if counted == self._truth else None)

    def _mute(self) -> None:
        """A whole response that is not counted, or in part."""
        usage, missing = self._counted(), self.dice.pick(MISSING)
        usage = Usage(
            0 if "input" in missing else usage.input_tokens, 0 if "output" in missing else usage.output_tokens
        )
        marked = self.dice.pick((missing, ()))  # told as missing, or reported as 0
        self._settle(replace(self._reply(usage), estimated=marked), None)

    def _break(self) -> None:
        """A response that breaks off, with what it read already counted, or not."""
        counted = self._counted()
        usage, estimated = self.dice.pick(((Usage(), MISSING[0]), (Usage(counted.input_tokens), MISSING[2])))
        received = self.dice.upto(100_000)
        failure = Failure("provider_transient", "It broke.")
        self._settle(ModelFailure(failure, usage, estimated, received), None)

    def _refuse(self) -> None:
        self._settle(ModelFailure(Failure("rate_limited", "Later.")), Usage())

    def _cut(self) -> None:
        self._settle(ModelCut("So", received_bytes=self.dice.upto(100_000)), None)

    def _crash(self) -> None:
        """Crash during a model call: its cost is unknown, and its response comes too late."""
        lost = self.story.model_call
        late = self._reply(self._counted())
        self._held = (
            self._held[0] + lost.reserved_microusd,
            self._held[1] + lost.reserved_tokens,
        )
        before = self.totals
        self.story.attach()
        assert self.story.when(Outcome(lost.key, late)) == []
        assert (self.totals.cost_microusd, self.totals.usage) == (before.cost_microusd, before.usage)

    # --- what it counts -------------------------------------------------------------------------

    def _counted(self) -> Usage:
        """What the provider says about the open call; `_truth` is what it is."""
        most = self.story.model_call.output_cap_tokens
        read = max(sum(piece.tokens for piece in self._sent) + self.dice.upto(OVERHEAD_TOKENS), 1)
        written = max(self.dice.upto(most), 1)
        cached = self.dice.upto(read)
        self._truth = Usage(read, written, cached, self.dice.upto(read - cached))
        if self.may_lie and self.dice.pick((False, True)):
            return Usage(*(self.dice.pick(LIES) for _ in range(4)))
        return self._truth

    def _reply(self, usage: Usage) -> ModelReply:
        """Words of a size that so many tokens may have, and a call; both are read again by the next request."""
        size = self.dice.upto(min(self._truth.output_tokens * MOST_BYTES_PER_TOKEN, 4_000))
        around = a_piece(self.dice, AROUND_BYTES)
        answer = Piece(
            size + around.size_bytes, self.dice.upto(min(self._truth.output_tokens, size)) + around.tokens
        )
        self._new = [answer, a_piece(self.dice, 9_000)]
        return ModelReply((Text("x" * size), call()), usage, "tool_calls")

    def _settle(self, result: ModelResult, truth: Usage | None) -> None:
        """The outcome arrives; what it is charged with is the truth where that is known."""
        story, lost, before = self.story, self.story.model_call, self.totals
        story.when(Outcome(lost.key, result))
        cost = self.totals.cost_microusd - before.cost_microusd
        tokens = self.totals.usage.total_tokens - before.usage.total_tokens
        if truth is not None:
            assert (cost, tokens) == (cost_microusd(lost.facts, truth), truth.total_tokens)
        elif not isinstance(result, ModelReply) and not result.usage.total_tokens:
            assert 0 < tokens <= lost.reserved_tokens
            assert cost <= lost.reserved_microusd
        if isinstance(result, ModelReply):
            assert tokens > 0, "nobody reads for nothing"
        if not self.may_lie:
            assert cost <= lost.reserved_microusd
            assert tokens <= lost.reserved_tokens
        for each in story.state.turn.calls:
            if open_run(story.state) is not None:
                story.admitted(each.call_id)
                story.finished(each.call_id, str(story.state.seq))

    # --- what must hold -------------------------------------------------------------------------

    def _check(self) -> None:
        """At no time more is spent, held and reserved than the limits allow; only a lie exceeds them, and then
        nothing follows it."""
        totals, limits, lost = (
            self.totals,
            self.story.settings.limits,
            self.story.state.models.open,
        )
        money = totals.cost_microusd + totals.held_microusd
        tokens = totals.usage.total_tokens + totals.held_tokens
        if lost is not None:
            money += lost.reserved_microusd
            tokens += lost.reserved_tokens
        if money > limits.cost_microusd or tokens > limits.tokens:
            assert self.may_lie
            assert open_run(self.story.state) is None
            assert (self.story.run.status, lost) == ("limit", None)
            assert self.story.run.reason == ("cost" if money > limits.cost_microusd else "tokens")


def _size(pieces: list[Piece]) -> int:
    return sum(piece.size_bytes for piece in pieces)
