"""Reserves the worst case of a model call before it is sent, and computes what it really cost.

No prices are looked up here (they came with the settings of the run) and nothing is rendered.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import astuple, replace

from holdfast.core.changes import with_reservation
from holdfast.core.measure import (
    BYTES_PER_TOKEN,
    MOST_BYTES_PER_TOKEN,
    OVERHEAD_TOKENS,
    UNLEARNT,
    WORST_SHARE,
    Measure,
    expected_tokens,
    size_of,
    worst_tokens,
)
from holdfast.core.state import ModelCall, Run, State, facts
from holdfast.protocol.counts import counted
from holdfast.protocol.failures import Failure, in_full
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import Limits, ModelFacts, Tier, cost_microusd, usd
from holdfast.protocol.messages import Estimated, ModelReply, Reasoning, Usage, UsageSide
from holdfast.protocol.outcomes import ModelCut, ModelFailure, Unaffordable
from holdfast.protocol.settings import Settings

RESPONSE_BYTES = 256
"""The bytes that a wire adds around a response when a later request contains it."""
LAST_PASS_OUTPUT_TOKENS = 1_024
LEAST_OUTPUT_TOKENS = 256
LEAST_LAST_OUTPUT_TOKENS = 16
WARN_SHARE = 0.8
CALL_SHARE = 4
"""One call may cost a quarter of what the run may cost."""
LEAST_WINDOW_BASES = 4
"""However little the run may cost, its window is four times the prompt and the tools."""
WINDOW_SHARE = 0.9
"""The share of the window that a request may fill by our estimate. The rest is for errors of the estimate."""
UNLIMITED = 1 << 62
_SHORT_OF_CALL = "A model call is likely to cost more than the ${limit} that [limits] call_usd allows."
_SHORT_OF_REST = "The {} that it could take is more than it may take beside the work."
_MORE_THAN_RESERVED = ", since the provider charged more for a model call than the worst case."


# A worked example, which `tests/core/test_budget` plays: a run with a budget of $0.10, on a model whose input
# costs $1 per million tokens and whose output costs $4. So an input token costs 1 micro-dollar and an output
# token 4. `afford` asks what a model call and one last answer after it could cost at the worst, and makes the
# output cap as large as fits.
#
# Model call 1 sends 14,000 bytes. No provider has counted any of them, so each may be a token:
#     worst input        14,000 + OVERHEAD_TOKENS (192)         = 14,192 tokens
#     last pass, input   1.15 * 14,192 + 192 + RESPONSE_BYTES     = 16,769 tokens
#     last pass, output  LAST_PASS_OUTPUT_TOKENS                =  1,024 tokens, or 4,096 micro-dollars
#     left for output    100,000 - 14,192 - 16,769 - 4,096      = 64,943 micro-dollars
#     affordable output  64,943 / (4 + 1.15)                    = 12,610 tokens
# One call is to cost no more than a quarter of the money, by what is likely. The input is likely to be 3,360 tokens:
#     output cap         (25,000 - 3,360) / 4                   =  5,410 tokens
#     reserved           14,192 + 4 * 5,410                     = 35,832 micro-dollars
# An output token costs 4 when it is written, and up to 1.15 when the last pass reads it. The provider counts
# 4,000 input and 300 output tokens. That is 5,200 micro-dollars; the rest of the reservation is free again.
#
# Model call 2 sends 35,000 bytes: the same 14,000, the response (1,000) and a tool's result (20,000). Now only the
# result is uncounted, because the provider has counted the request and the response:
#     worst input        1.15 * (4,000 + 300) + 20,000 + 192    = 25,137 tokens
#     output cap         (25,000 - 9,964) / 4 = 3,759 tokens; reserved: 40,173 micro-dollars
# The provider counts 10,000 and 300 tokens. 16,400 micro-dollars are spent, and 83,600 are left.
#
# Model call 3 would send 66,000 bytes. Its worst input is 42,037 tokens, and a last pass after it needs 48,791 +
# 4,096. Together that is more than 83,600, so this one is `Unaffordable`, and the run lands. The last pass
# sends the same request without tools. It may use everything, since nothing follows: its output cap is (83,600
# - 42,037) / 4 = 10,390 tokens. It really costs 20,200, so the run ends with $0.0366 of $0.10 spent. The gap is
# the price of never exceeding the limit.


class Grant(msgspec.Struct, frozen=True):
    """What an affordable model call reserves."""

    expected_tokens: int
    output_cap_tokens: int
    reserved_tokens: int
    reserved_microusd: int


class Charge(msgspec.Struct, frozen=True):
    """The usage and cost of an attempt, as they count against the limits."""

    usage: Usage
    estimated: Estimated
    cost_microusd: int


def charge(model_call: ModelCall, reply: ModelReply) -> Charge:
    """Return the charge of a response: the reported usage, and an estimate for each side that was not reported. A
    count of zero is believed only if the model is free, or for output if nothing was received."""
    usage, missing, is_free = _possible(reply.usage), reply.estimated, model_call.facts.price == "free"
    # The usual case: the provider counted both sides, or the model is free.
    if not missing and (is_free or (usage.input_tokens and usage.output_tokens)):
        return Charge(usage, (), cost_microusd(model_call.facts, usage))
    received = received_bytes(reply)
    is_read = "input" in missing or not (usage.input_tokens or is_free)
    is_written = "output" in missing or not (usage.output_tokens or is_free or not received)
    sides: tuple[tuple[UsageSide, bool], ...] = (("input", is_read), ("output", is_written))
    estimated = tuple(side for side, is_missing in sides if is_missing)
    # If the response may have stayed within its output cap, no more than the cap is charged.
    most = max(model_call.output_cap_tokens, received // MOST_BYTES_PER_TOKEN)
    return _charge(model_call, usage, estimated, min(_tokens(received), most))


def charge_broken(model_call: ModelCall, broken: ModelFailure | ModelCut) -> Charge:
    """Return the charge of an attempt without a whole response: the reported usage, and an estimate for each side
    that the provider may charge without a report. The estimate stays within the reservation."""
    written = min(_tokens(broken.received_bytes), model_call.output_cap_tokens)
    usage, missing = _possible(broken.usage), broken.estimated
    has_come = bool(missing or broken.received_bytes or usage.output_tokens)
    if has_come and model_call.facts.price != "free":
        # As with a whole response, a count of zero is not believed.
        is_read = "input" in missing or not usage.input_tokens
        is_written = "output" in missing or not (usage.output_tokens or not broken.received_bytes)
        sides: tuple[tuple[UsageSide, bool], ...] = (("input", is_read), ("output", is_written))
        missing = tuple(side for side, is_missing in sides if is_missing)
    return _charge(model_call, usage, missing, written)


def received_bytes(reply: ModelReply) -> int:
    """Return how many bytes arrived, thoughts included."""
    thoughts = sum(
        len(part.text.encode("utf-8", "surrogatepass")) for part in reply.parts if isinstance(part, Reasoning)
    )
    return max(reply.received_bytes, thoughts + size_of(reply.parts))


def _possible(usage: Usage) -> Usage:
    """Return the usage without negative counts, which no provider can mean."""
    counts = astuple(usage)
    return usage if min(counts) >= 0 else Usage(*(max(count, 0) for count in counts))


def _charge(model_call: ModelCall, usage: Usage, estimated: Estimated, written: int) -> Charge:
    if "input" in estimated:
        usage = replace(usage, input_tokens=max(usage.input_tokens, model_call.expected_tokens))
    if "output" in estimated:
        usage = replace(usage, output_tokens=max(usage.output_tokens, written))
    return Charge(usage, estimated, cost_microusd(model_call.facts, usage))


def _tokens(size_bytes: int) -> int:
    return math.ceil(size_bytes / BYTES_PER_TOKEN)


class Window(msgspec.Struct, frozen=True, gc=False):
    """How many input tokens the next request may have."""

    tokens: int
    """The smallest of the model's window, `[context] max_tokens`, and what fits into the money of one call."""
    room_tokens: int
    """The most by our estimate, to fit in there and beside an answer."""


def window_of(state: State, settings: Settings) -> Window:
    """Return the window of the next request."""
    model = facts(state)
    own = _window(state, model)
    tokens = min(own, settings.context.max_tokens, _payable_tokens(state, settings, model))
    beside_answer = int(own * WINDOW_SHARE) - min(_output_cap(model, settings), own // 4)
    return Window(tokens, max(min(beside_answer, int(tokens * WINDOW_SHARE)), 1))


def _payable_tokens(state: State, settings: Settings, model: ModelFacts) -> int:
    """Return the input tokens that one call may cost: a quarter of the run's money, and at least room to work in."""
    # An example: with $2 a call may cost $0.50. At $5 per million tokens, which a write to the cache may make $6.25,
    # that is 80,000 tokens. With $0.10 it would be 4,000, and the prompt with the tools alone has as many: then four
    # times as much is the window.
    if model.price != "known" or not state.models.base_bytes:
        return model.context_tokens
    most = _call_microusd(settings.limits)
    payable = max([_payable_up_to(end, most, model) for end in _ends(model, model.context_tokens)])
    if payable >= model.context_tokens or settings.limits.call_microusd:
        return payable
    base = Kinds(base=state.models.base_bytes)
    return max(payable, LEAST_WINDOW_BASES * expected_tokens(Measure(rates=state.models.measure.rates), base))


def _payable_up_to(end: int, microusd: int, model: ModelFacts) -> int:
    price = _worst_input_price(model, end)
    return min(end, microusd * 1_000_000 // price) if price else end


def _ends(model: ModelFacts, tokens: int) -> list[int]:
    """Return the largest size of each price. Above it all tokens cost more, so it may be the largest affordable."""
    return [*(tier.above_tokens for tier in model.tiers), tokens]


def affordable_bytes(state: State, settings: Settings, left_microusd: int = UNLIMITED) -> int:
    """The size of a request that a last pass can pay in any case, and that fits the window."""
    if state.run is None:
        return 1
    run = with_reservation(state.run, state.side.open)
    limits = lowered(run, settings.limits, left_microusd)
    most = _affordable_input(run, facts(state), limits) - OVERHEAD_TOKENS
    return max(min(most, window_of(state, settings).room_tokens), 1)


def afford(
    state: State,
    size_bytes: int,
    fresh_bytes: int,
    kinds: Kinds,
    *,
    is_last_pass: bool,
    left_microusd: int = UNLIMITED,
) -> Grant | Unaffordable:
    """Return what a model call with a request of this size reserves, or which limit it would break. `fresh_bytes`
    counts the bytes that the last request did not have, and `kinds` what the request has of each kind of text.
    `left_microusd` is what budgets that are wider than the run leave for it.

    An ordinary model call must leave what a last pass over its response needs, so that a run can end in an answer.
    Words that people add meanwhile may still make the last pass too large, and so may a count of tokens that cannot
    be true: it is not believed, and then the response counts by its bytes.
    """
    assert state.settings is not None
    assert state.run is not None
    settings, run = state.settings, with_reservation(state.run, state.side.open)
    model, measure = facts(state), state.models.measure
    limits = lowered(run, settings.limits, left_microusd)
    worst = worst_tokens(measure, size_bytes, fresh_bytes)
    expected = min(expected_tokens(measure, kinds), worst)
    window, most = _window(state, model), _output_cap(model, settings)
    cap = min(most, max(window - expected, 0))
    least = max(min(LEAST_LAST_OUTPUT_TOKENS if is_last_pass else LEAST_OUTPUT_TOKENS, most), 1)
    # Three things limit the output: the window, the tokens that are left, and the money that is left. The first
    # one that does not leave the least useful answer is the reason that is reported.
    if cap < least or expected > settings.context.max_tokens:
        return Unaffordable("context", _short_of_window(state, window), size_bytes, fresh_bytes, kinds)
    kept = 0 if is_last_pass else _last_pass_input(worst) + _last_pass_output(model, limits)
    # An output token counts once now and up to 1.15 times as input of the last pass. So the tokens that are
    # left are divided by 2.15 for an ordinary model call, but not for the last pass, which nothing follows.
    left = tokens_left(run, limits) - worst - kept
    cap = min(cap, left if is_last_pass else int(left / (1 + WORST_SHARE)))
    if cap < least:
        message = _short_of_tokens(tokens_left(run, limits), limits, is_last_pass)
        return Unaffordable("tokens", message, size_bytes, fresh_bytes, kinds)
    if model.price == "known":
        cap = min(cap, _affordable_output(run, model, limits, worst, cap, is_last_pass))
        is_bound = bool(settings.limits.call_microusd) or not is_last_pass
        if cap >= least and is_bound:
            # What one call may cost is about what is likely: at the worst, each byte of a compacted view is a token
            # again, and the run could not go on. A limit that somebody set refuses; a last answer always comes.
            most_microusd = _call_microusd(settings.limits)
            payable = _payable_output(model, expected, most_microusd)
            if payable < least and settings.limits.call_microusd and not is_last_pass:
                message = _SHORT_OF_CALL.format(limit=usd(most_microusd))
                return Unaffordable("cost", message, size_bytes, fresh_bytes, kinds)
            cap = max(min(cap, payable), least)
        if cap < least:
            message = _short_of_money(cost_left(run, limits), limits, is_last_pass)
            return Unaffordable("cost", message, size_bytes, fresh_bytes, kinds)
    return Grant(expected, cap, worst + cap, _price(model, worst, cap))


def _call_microusd(limits: Limits) -> int:
    """Return what one call may cost."""
    return limits.call_microusd or limits.cost_microusd // CALL_SHARE


def _payable_output(model: ModelFacts, worst: int, most_microusd: int) -> int:
    """Return the output tokens that one call may have after this input, within what it may cost."""
    price, left = _worst_output_price(model, worst), most_microusd - _price(model, worst, 0)
    if left < 0:
        return -1
    return left * 1_000_000 // price if price else 1 << 62


def afford_side(
    state: State,
    model: ModelFacts,
    size_bytes: int,
    fresh_bytes: int,
    kinds: Kinds,
    most_output_tokens: int,
    most_microusd: int,
) -> Grant | Unaffordable:
    """Return what a side call to `model` reserves, or which limit it would break. It leaves what the open call for
    work has reserved, and what another one and a last pass need after it.

    Args:
        most_output_tokens: The longest useful answer.
        most_microusd: What it may be expected to cost: the prefix that a caching provider has read before counts at
            its cached price. Only the reservation covers a cache that misses.
    """
    assert state.settings is not None
    assert state.run is not None
    settings, is_own = state.settings, model.name == facts(state).name
    run, limits = with_reservation(state.run, state.models.open), settings.limits
    measure, window = (
        (state.models.measure, _window(state, model))
        if is_own
        else (_unseen(state, model), model.context_tokens)
    )
    worst = worst_tokens(measure, size_bytes, fresh_bytes)
    expected = min(expected_tokens(measure, kinds), worst)
    most = min(_output_cap(model, settings), most_output_tokens)
    least = min(LEAST_OUTPUT_TOKENS, most)
    cap = min(most, max(window - expected, 0))
    if cap < least:
        return Unaffordable("context", "It does not fit the model's window.", size_bytes, fresh_bytes, kinds)
    # The work comes first. What its open call has reserved counts as gone. Another call after it would read its
    # request and its response again, and so would a last pass after that one: this much has to be left too, so that a
    # side call does not end a run. Without an open call, the last request counts.
    work = _next_of_work(state, limits)
    cap = min(cap, tokens_left(run, limits) - sum(work) - worst)
    if cap < least:
        return Unaffordable("tokens", _SHORT_OF_REST.format("tokens"), size_bytes, fresh_bytes, kinds)
    if model.price == "known":
        price = _worst_output_price(model, worst)
        left = cost_left(run, limits) - next_of_work_microusd(state) - _price(model, worst, 0)
        # The limit of the purpose is about what is likely. If the provider caches, it has read the conversation
        # already, and charges less for it. Of everything else the worst is assumed. An example: 20,000 tokens of
        # which 19,000 are cached, at 1 and 0.1 micro-dollars a token, cost 2,900 and not 20,000.
        cached = min(measure.tokens, worst) if is_own and run.totals.usage.cache_read_tokens else 0
        cost = _price(model, worst - cached, 0) + cost_microusd(model, Usage(cached, 0, cached))
        left = min(left, most_microusd - cost)
        cap = min(cap, left * 1_000_000 // price if price and left >= 0 else (cap if left >= 0 else -1))
        if cap < least:
            return Unaffordable("cost", _SHORT_OF_REST.format("money"), size_bytes, fresh_bytes, kinds)
    reserved = worst + cap
    return Grant(expected, cap, reserved, _price(model, worst, cap))


def next_of_work_microusd(state: State) -> int:
    """Return what the next call of the work and a last pass after it may cost."""
    assert state.settings is not None
    model = facts(state)
    return _price(model, *_next_of_work(state, state.settings.limits)) if model.price == "known" else 0


def _next_of_work(state: State, limits: Limits) -> tuple[int, int]:
    """Return the input and output tokens that the next call of the work and a last pass after it may need."""
    open_, measure = state.models.open, state.models.measure
    before = open_.reserved_tokens if open_ is not None else worst_tokens(measure, state.models.size_bytes, 0)
    next_input = _last_pass_input(before)
    last_input = _last_pass_input(next_input + LEAST_OUTPUT_TOKENS)
    return next_input + last_input, LEAST_OUTPUT_TOKENS + _last_pass_output(facts(state), limits)


def _unseen(state: State, model: ModelFacts) -> Measure:
    """Return the measure of another model, which has counted nothing of this conversation."""
    return Measure(rates=state.models.learnt.get(model.name, UNLEARNT))


def lowered(run: Run, limits: Limits, left_microusd: int) -> Limits:
    """Return the limits with no more money left than that."""
    # An example: $2.00 for the run, of which $0.50 are used, and $0.30 are left today. Then the run is prepared as if
    # its own limit were $0.80.
    too_much = cost_left(run, limits) - left_microusd
    return replace(limits, cost_microusd=limits.cost_microusd - too_much) if too_much > 0 else limits


def last_pass_microusd(state: State, grant: Grant, left_microusd: int) -> int:
    """Return what a last pass after this call costs at the worst. `left_microusd` is that of `afford`."""
    assert state.settings is not None
    assert state.run is not None
    model, run = facts(state), with_reservation(state.run, state.side.open)
    limits = lowered(run, state.settings.limits, left_microusd)
    worst = grant.reserved_tokens - grant.output_cap_tokens
    tokens = _last_pass_input(worst) + math.ceil(grant.output_cap_tokens * WORST_SHARE)
    return _price(model, tokens, _last_pass_output(model, limits))


def cost_left(run: Run, limits: Limits) -> int:
    """Return the micro-dollars that are neither spent nor held. The reservations of open model calls are not
    subtracted."""
    return limits.cost_microusd - run.totals.cost_microusd - run.totals.held_microusd


def tokens_left(run: Run, limits: Limits) -> int:
    """Return the tokens that are neither used nor held."""
    return limits.tokens - run.totals.usage.total_tokens - run.totals.held_tokens


def is_exceeded(run: Run, limits: Limits) -> bool:
    """Whether more is used and held than a limit allows: a provider charged more than the worst case of a model
    call, or somebody lowered the limit during one."""
    return cost_left(run, limits) < 0 or tokens_left(run, limits) < 0


def excess(run: Run, limits: Limits, *, is_overcharged: bool) -> tuple[str, str]:
    """Return the exceeded limit, with a message. `is_overcharged`: the last model call cost more than reserved."""
    why = _MORE_THAN_RESERVED if is_overcharged else "."
    if cost_left(run, limits) < 0:
        used, limit = usd(limits.cost_microusd - cost_left(run, limits)), usd(limits.cost_microusd)
        return "cost", f"The budget of ${limit} is exceeded: ${used} is used{why}"
    used = f"{limits.tokens - tokens_left(run, limits):,}"
    return "tokens", f"The limit of {counted(limits.tokens, 'token')} is exceeded: {used} are used{why}"


def warnings(run: Run, model: ModelFacts, limits: Limits) -> list[tuple[str, str]]:
    """Return the limits that are 80 % used and that nobody was warned about, each with a message."""
    found = []
    used_microusd = limits.cost_microusd - cost_left(run, limits)
    if model.price == "known" and used_microusd >= WARN_SHARE * limits.cost_microusd:
        left = usd(max(cost_left(run, limits), 0))
        text = f"80 % of the budget of ${usd(limits.cost_microusd)} is used; ${left} is left."
        found.append(("cost", text))
    if limits.tokens - tokens_left(run, limits) >= WARN_SHARE * limits.tokens:
        found.append(("tokens", f"80 % of the limit of {counted(limits.tokens, 'token')} is used."))
    return [(name, text) for name, text in found if name not in run.warned]


def _short_of_money(left_microusd: int, limits: Limits, is_last_pass: bool) -> str:
    if left_microusd <= 0:
        return f"The budget of ${usd(limits.cost_microusd)} is used up."
    left, limit = usd(left_microusd), usd(limits.cost_microusd)
    return f"With ${left} left of the budget of ${limit}, {_what_is_next(is_last_pass)} could cost more than that."


def _short_of_tokens(left: int, limits: Limits, is_last_pass: bool) -> str:
    if left <= 0:
        return f"The limit of {counted(limits.tokens, 'token')} is used up."
    next_ = _what_is_next(is_last_pass)
    return f"With {left:,} left of the limit of {counted(limits.tokens, 'token')}, {next_} could take more than that."


def _what_is_next(is_last_pass: bool) -> str:
    return "a last answer" if is_last_pass else "another model call and a last answer after it"


def _short_of_window(state: State, window: int) -> str:
    """Return why no request fits. A learnt window is our guess, so the provider's own words stand in its place."""
    advice = "Use a model with a larger window, or fork the session at an earlier record."
    if state.settings is not None and state.settings.context.max_tokens < window:
        most = f"[context] max_tokens = {state.settings.context.max_tokens:,}"
        return f"The conversation has more tokens than {most} allows, and it cannot be shortened. Raise that number."
    if not state.models.learnt_window_tokens:
        return f"The conversation fills the model's window of {counted(window, 'token')}. {advice}"
    refused = f"The model's server refuses the conversation as too long, and it cannot be shortened. {advice}"
    return in_full(Failure("context_overflow", refused, said=state.models.overflow_said))


def _window(state: State, model: ModelFacts) -> int:
    learnt, own = state.models.learnt_window_tokens, model.context_tokens
    return learnt if 0 < learnt < own else own


def _output_cap(model: ModelFacts, settings: Settings) -> int:
    # 0 means that the model's own limit is unknown; it must not count as a cap of zero tokens.
    own, most = model.max_output_tokens, settings.model.max_output_tokens
    return own if 0 < own < most else most


def _reachable(model: ModelFacts, input_tokens: int) -> list[ModelFacts | Tier]:
    """Return the prices of all sizes up to this one. In a catalog, a smaller request may have the higher price."""
    if not model.tiers:
        return [model]
    return [model, *(tier for tier in model.tiers if input_tokens > tier.above_tokens)]


def _worst_input_price(model: ModelFacts, input_tokens: int) -> int:
    """Return the highest price per million input tokens of a request with up to so many. Writing to the cache can
    cost more than plain input, and a catalog may say anything."""
    return max(
        [
            max(
                prices.input_microusd_per_mtok,
                prices.cache_write_microusd_per_mtok,
                prices.cache_read_microusd_per_mtok,
            )
            for prices in _reachable(model, input_tokens)
        ]
    )


def _worst_output_price(model: ModelFacts, input_tokens: int) -> int:
    return max([prices.output_microusd_per_mtok for prices in _reachable(model, input_tokens)])


def _price(model: ModelFacts, input_tokens: int, output_tokens: int) -> int:
    total = input_tokens * _worst_input_price(model, input_tokens)
    total += output_tokens * _worst_output_price(model, input_tokens)
    return -(-total // 1_000_000)


def _last_pass_input(worst: int) -> int:
    """Return the worst input of a last pass, which reads the same conversation again after a call at its worst."""
    return math.ceil(worst * WORST_SHARE) + OVERHEAD_TOKENS + RESPONSE_BYTES


def _last_pass_output(model: ModelFacts, limits: Limits) -> int:
    """The output that is kept back for a last pass: never more than a tenth of a small budget."""
    # With $0.02 and an output price of $10 per million tokens, 1,024 tokens would keep back half of the budget.
    # A tenth of it is $0.002, which is 200 tokens.
    price = _worst_output_price(model, model.context_tokens) if model.price == "known" else 0
    share = limits.cost_microusd * 100_000 // price if price else LAST_PASS_OUTPUT_TOKENS
    tenth = limits.tokens // 10
    return max(min(LAST_PASS_OUTPUT_TOKENS, share, tenth), LEAST_LAST_OUTPUT_TOKENS)


def _affordable_output(
    run: Run, model: ModelFacts, limits: Limits, worst: int, cap: int, is_last_pass: bool
) -> int:
    """The output tokens, of up to `cap`, that the budget affords after this input; an ordinary model call's output is
    paid again as input of the last pass, which has to stay affordable too."""
    left = cost_left(run, limits) - _price(model, worst, 0)
    per_token = _worst_output_price(model, worst)
    if not is_last_pass:
        # The output may carry the last pass into a dearer size: all of its tokens then cost that.
        last = _last_pass_input(worst)
        most = last + math.ceil(cap * WORST_SHARE)
        per_input = _worst_input_price(model, most)
        output = _last_pass_output(model, limits) * _worst_output_price(model, most)
        left -= -(-(last * per_input + output) // 1_000_000)
        per_token += math.ceil(per_input * WORST_SHARE)
    if left < 0:
        return -1
    return left * 1_000_000 // per_token if per_token else 1 << 62


def _affordable_input(run: Run, model: ModelFacts, limits: Limits) -> int:
    """The input tokens of a last pass that leave room for the least answer."""
    # Above a tier's end all tokens cost more. So the largest affordable size may be the end of a cheaper tier:
    # every end is tried, and the largest size that is affordable wins.
    tokens = tokens_left(run, limits) - LEAST_LAST_OUTPUT_TOKENS
    if model.price == "known":
        ends = [*(tier.above_tokens for tier in model.tiers), tokens]
        tokens = min(tokens, max(_affordable_up_to(end, run, model, limits) for end in ends))
    return tokens


def _affordable_up_to(end: int, run: Run, model: ModelFacts, limits: Limits) -> int:
    """The input tokens, of up to `end`, that a last pass can pay at the prices of so large a request."""
    price = _worst_input_price(model, end)
    answer = -(-LEAST_LAST_OUTPUT_TOKENS * _worst_output_price(model, end) // 1_000_000)
    left = max(cost_left(run, limits) - answer, 0)
    return min(end, left * 1_000_000 // price) if price else end
