"""Prepare steps: render and estimate a request, or ask the gates about a call. They have no effect.

A step that waits for nothing runs inside its decision. A slow one (setting up a provider, a tool's plan, probing an
interrupted call) runs as a task of the driver, with a limit, and can be stopped. Whatever it raises becomes a
finding.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256

from msgspec.structs import replace

from holdfast.context.conversation import Conversation, Edit, common_prefix
from holdfast.context.record import record_of, request_of
from holdfast.core import budget, deferred, pace, side, side_calls
from holdfast.core.causes import Finding, Found
from holdfast.core.measure import expected_tokens
from holdfast.core.prompted import Prompted
from holdfast.core.state import Call, Permission, State, facts, facts_for, shares_request
from holdfast.core.wanted import Admit, Prepare, PrepareRequest, PrepareSide
from holdfast.errors import Fenced, HoldfastError, SecretsSealed, StorageError
from holdfast.protocol.answers import ANSWER, Answer
from holdfast.protocol.budgets import Claim
from holdfast.protocol.compaction import ContextCompacted, Reason
from holdfast.protocol.events import SummaryDiscarded
from holdfast.protocol.failures import Failure, FailureCode
from holdfast.protocol.hooks import hooks_on, longest_s
from holdfast.protocol.kinds import Kinds
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.outcomes import BudgetNear, Built, CircuitMet, Lost, Probed, Unaffordable, Unready
from holdfast.protocol.ports import Check, Proposal, Wire
from holdfast.protocol.request import Enclosed, Purpose, Request
from holdfast.protocol.settings import Settings
from holdfast.protocol.tools import (
    APPROVAL,
    NO_REACH,
    TELLING,
    Admission,
    Allowed,
    Asked,
    Reach,
    Refused,
    Told,
    bound,
)
from holdfast.runtime.apart import Apart, Left
from holdfast.runtime.compacting import compacted
from holdfast.runtime.enclosing import fill
from holdfast.runtime.exchange import Cleared, Exchange, held_back
from holdfast.runtime.fold import Fold
from holdfast.runtime.in_text import wire_of
from holdfast.runtime.originals import Original, Originals
from holdfast.runtime.ports import Ports
from holdfast.runtime.prompting import difference, recorded_tools
from holdfast.runtime.purse import Ask, Granted, Purse

PREPARE_LIMIT_S = 10.0
"""The time limit of a step."""
MAX_DETAIL_CHARS = 2_000
MOST_RECORD_BYTES = 200_000
RECORD_BYTES_PER_TOKEN = 2
"""A record of the work for another model takes about half of its window."""
IN_THREAD_FROM_BYTES = 65_536
"""Choosing what stays of a larger view would block all other sessions."""


class Planner:
    """Prepares for one session. Keeps what does not change from turn to turn."""

    def __init__(
        self, ports: Ports, originals: Originals, apart: Apart, check: Check, exchange: Exchange
    ) -> None:
        self._ports = ports
        self._originals = originals
        self._check = check
        self._purse = Purse(ports.budgets, ports.zone)
        self._exchange = exchange
        self._base_key: tuple[ModelFacts, str, str, str, bool] | None = None
        self._base = b""
        self._base_sha256 = ""
        self._offered: tuple[str, ...] = ()
        self._bodies: dict[bool, bytes] = {}
        """The bytes of the last prepared request for work, and of the last one of a side call (True)."""
        self._looked_version = ports.tools.version
        """The version of the tools when the inputs were looked at."""
        self._looked_seq = 0
        """What made the inputs of the prompt due when they were found unchanged."""
        self._apart = apart
        self._allowed: dict[str, tuple[Proposal, Reach]] = {}
        """By call, what may run and what it reached when the gates let it pass, of calls that a gate asks about."""

    def is_quick(self, step: Prepare, state: State) -> bool:
        """Return whether the step waits for nothing."""
        if type(step) is Admit:
            assert state.settings is not None
            is_judged_at_once = step.call.interrupted is None and self._ports.tools.is_quick(
                step.call.name, state.settings
            )
            return is_judged_at_once and not _has_schema(step.call, state)  # to check an answer may take long
        if type(step) is PrepareRequest:
            return facts(state).name in self._ports.wires and not self._must_look(state)
        assert isinstance(step, PrepareSide)
        return _model(step, state) in self._ports.wires

    def _must_look(self, state: State) -> bool:
        """Return whether the inputs of the prompt must be read: since this was done last, something opened, or a
        source brought tools or took them away.
        """
        is_due = bool(state.prompt.due) and state.prompt.due_seq != self._looked_seq
        return is_due or self._ports.tools.version != self._looked_version

    async def make_ready(self, step: Prepare, state: State) -> Finding | None:
        """Run the part of a slow step that waits, and return its finding; None if a request can be rendered now."""
        return await self.finding(step, state, self._waited(step, state))

    async def finding(self, step: Prepare, state: State, found: Awaitable[Found | None]) -> Finding | None:
        """Return the finding of the step, which this state wants, within its limit. An exception becomes a finding
        too. None means no finding.

        Without a finding for failures, every later driver would try the step again.
        """
        try:
            result = await found
        except (Fenced, SecretsSealed, StorageError):
            raise
        except Exception as error:
            return Finding(step, self._failed(step, error), state)
        return Finding(step, result, state) if result is not None else None

    async def _waited(self, step: Prepare, state: State) -> Built | Admission | Probed | Lost | None:
        limit_s = PREPARE_LIMIT_S
        if isinstance(step, Admit) and state.settings is not None and state.settings.policy.hooks:
            limit_s += longest_s(hooks_on("before_tool", state.settings.policy.hooks, step.call.name))
        try:
            return await self._apart.run(self._ready(step, state), limit_s)
        except Left:
            raise Left(f"It took longer than {limit_s:g} s.") from None

    async def _ready(self, step: Prepare, state: State) -> Built | Admission | Probed | Lost | None:
        if isinstance(step, Admit):
            return await self.admission(step, state)
        model = _model(step, state)
        if model not in self._ports.wires:
            self._ports.wires[model] = (await self._ports.resolve(model)).wire
        if state.settings is None or not (isinstance(step, PrepareRequest) and self._must_look(state)):
            return None
        version = self._ports.tools.version
        found = await difference(self._ports, state.settings, state.prompt)
        self._looked_version = version
        if found is None:
            self._looked_seq = state.prompt.due_seq
        return found

    def _failed(self, step: Prepare, error: Exception) -> Unready | Refused:
        redact = self._ports.redact
        if isinstance(error, TimeoutError):
            said = str(error) if isinstance(error, Left) else "It took too long."
        elif isinstance(error, HoldfastError):
            said = redact(f"{error.message} {error.hint}".strip())
        else:
            said = f"This is a bug ({type(error).__name__})."
        detail = redact("".join(traceback.format_exception(error)))[-MAX_DETAIL_CHARS:]
        if isinstance(step, Admit):
            code: FailureCode = "tool_timeout" if isinstance(error, TimeoutError) else "policy_denied"
            message = f"{step.call.name} was refused: the call could not be judged. {said}"
            return Refused(Failure(code, message, detail))
        return Unready(Failure("provider_unready", f"The model cannot be called. {said}", detail))

    def wire(self, state: State) -> Wire:
        """How to write the next request, for a model that is ready."""
        return self._wire(facts(state), state)

    def _wire(self, model: ModelFacts, state: State) -> Wire:
        return wire_of(self._ports.wires[model.name], model, state.session)

    def take_body(self, purpose: Purpose) -> bytes:
        """Return the bytes of the last prepared request, once."""
        return self._bodies.pop(purpose != "work")

    async def request(
        self, action: PrepareRequest, state: State, conversation: Conversation, wire: Wire, now_ms: int
    ) -> Request | ContextCompacted | SummaryDiscarded | Unaffordable | Unready | BudgetNear | CircuitMet:
        """Return the next request as an edit of the last one, or why it cannot be afforded; a compaction if its
        messages do not fit. The request is prepared again from the view that this leaves."""
        assert state.settings is not None
        settings, model = state.settings, facts(state)
        has_tools = await self._set_base(wire, model, state.prompt, action.is_last_pass)
        await fill(conversation, self._ports.store.blobs)
        kinds = conversation.kinds(wire, len(self._base))
        for reason in self._reasons(state, conversation, wire, kinds):
            fitting = await self._compacted(reason, state, conversation, wire)
            if fitting is not None:
                return fitting
        edit = conversation.render(wire, self._base)
        fresh_bytes = self._fresh_bytes(state, edit)

        def afford(left_microusd: int) -> budget.Grant | Unaffordable:
            sizes = edit.size_bytes, fresh_bytes, kinds
            return budget.afford(state, *sizes, is_last_pass=action.is_last_pass, left_microusd=left_microusd)

        grant, left = await self._granted(action, state, now_ms, afford)
        if isinstance(grant, Unaffordable):
            # With a side call open, a last pass waits for its end before anything is left out.
            is_last = action.is_last_pass and state.side.open is None
            affordable = (
                await self._compacted("last_pass", state, conversation, wire, left) if is_last else None
            )
            return affordable if affordable is not None else grant
        if not isinstance(grant, budget.Grant):
            return grant
        tail = wire.tail(
            model,
            grant.output_cap_tokens,
            is_streaming=settings.model.is_streaming,
            is_last_pass=action.is_last_pass and has_tools,
        )
        request = self._rendered(action, wire, self._base_sha256, edit, tail, grant, fresh_bytes)
        prefix_bytes = await self._prefix_bytes(state, model, edit)
        left = left if left != budget.UNLIMITED else -1
        return replace(request, prefix_bytes=prefix_bytes, left_microusd=left)

    async def _granted(
        self,
        action: PrepareRequest,
        state: State,
        now_ms: int,
        afford: Callable[[int], budget.Grant | Unaffordable],
    ) -> Granted:
        """Return what the call may use, once it has its money in all budgets and may go out."""
        model = facts(state)
        ask = self._asking(action.key, state, model)
        if self._purse.is_limited:
            is_last_pass = action.is_last_pass
            return await self._purse.grant(action.key, state, now_ms, afford, ask, is_last_pass=is_last_pass)
        grant = afford(budget.UNLIMITED)
        if isinstance(grant, budget.Grant) and self._exchange.counts(model):
            asked = await ask(None, grant)
            return Granted(asked.refusal(model, now_ms) or grant)
        return Granted(grant)

    def _asking(self, key: str, state: State, model: ModelFacts) -> Ask:
        """Return what asks whether an attempt may go out."""

        async def ask(claim: Claim | None, grant: budget.Grant) -> Cleared:
            return await self._exchange.ask(key, state, model, grant.expected_tokens, claim)

        return ask

    async def _side_granted(
        self, step: PrepareSide, state: State, now_ms: int, grant: budget.Grant
    ) -> budget.Grant | Unaffordable | Unready:
        """Do the same for a side call."""
        model = facts_for(state, step.purpose)
        ask = self._asking(step.key, state, model)
        if self._purse.is_limited:
            return await self._purse.grant_side(step.key, state, step.purpose, now_ms, grant, ask)
        if self._exchange.counts(model):
            asked = await ask(None, grant)
            if asked.later is not None:
                return held_back(asked.later, model, now_ms)
        return grant

    async def side_request(
        self, step: PrepareSide, fold: Fold, now_ms: int
    ) -> Request | Unaffordable | Unready:
        """Return the request of a side call: the last request for work, and one message more. Another model gets a
        record of that request."""
        state, conversation = fold.state, fold.conversation
        assert state.settings is not None
        model, kind, blobs = facts_for(state, step.purpose), side.KINDS[step.purpose], self._ports.store.blobs
        wire, is_shared = self._wire(model, state), shares_request(state, step.purpose)
        if (is_shared and wire.name != fold.wire) or not conversation.has_request:
            return Unready(Failure("provider_unready", "The view has changed since the last request."))
        await fill(conversation, blobs)
        told = b""
        if is_shared:
            base_sha256 = state.models.base
            base = self._base if base_sha256 == self._base_sha256 else await blobs.get(base_sha256)
            edit = conversation.aside(wire, base, kind.words)
        else:
            most = min(MOST_RECORD_BYTES, model.context_tokens * RECORD_BYTES_PER_TOKEN)
            record = record_of(conversation.sent(), most)
            told, base = record.encode(), wire.base(model, kind.system, ())
            base_sha256 = await blobs.put(base)
            enclosed = Enclosed(sha256(told).hexdigest()), record
            edit = request_of(wire, base, enclosed, kind.words)
        afforded = side_calls.afford(state, step.purpose, edit.size_bytes, edit.fresh_bytes, edit.kinds)
        grant = (
            afforded
            if isinstance(afforded, Unaffordable)
            else await self._side_granted(step, state, now_ms, afforded)
        )
        if isinstance(grant, Unready):
            return grant
        if isinstance(grant, Unaffordable):
            return replace(grant, size_bytes=edit.size_bytes, fresh_bytes=edit.fresh_bytes, kinds=edit.kinds)
        if told:  # not before, since no record names what is not sent
            await blobs.put(told)
        # Calls are not forbidden: to some providers that is another prefix, and their cache would not pay.
        streams = state.settings.model.is_streaming
        tail = wire.tail(model, grant.output_cap_tokens, is_streaming=streams, is_last_pass=False)
        request = self._rendered(step, wire, base_sha256, edit, tail, grant, edit.fresh_bytes)
        return replace(request, prefix_bytes=edit.kept_bytes if model.name == state.models.model else 0)

    def _rendered(
        self,
        step: PrepareRequest | PrepareSide,
        wire: Wire,
        base: str,
        edit: Edit,
        tail: bytes,
        grant: budget.Grant,
        fresh_bytes: int,
    ) -> Request:
        """Return the request as it is recorded, and keep its bytes until it is sent."""
        edit.hasher.update(tail)
        self._bodies[isinstance(step, PrepareSide)] = edit.body(tail)
        return Request(
            wire=wire.name,
            base=base,
            keep=edit.keep,
            tail=tail.decode(),
            sha256=edit.hasher.hexdigest(),
            size_bytes=edit.size_bytes + len(tail),
            expected_tokens=grant.expected_tokens,
            output_cap_tokens=grant.output_cap_tokens,
            reserved_tokens=grant.reserved_tokens,
            reserved_microusd=grant.reserved_microusd,
            fresh_bytes=fresh_bytes,
            kinds=edit.kinds,
            rest=edit.rest,
            points=edit.points,
        )

    def _reasons(
        self, state: State, conversation: Conversation, wire: Wire, kinds: Kinds
    ) -> Iterator[Reason]:
        """Yield why the view is to be compacted. If one leaves nothing out, the next one counts."""
        assert state.settings is not None
        # A person who asks comes first: a summary that waits may be too late to leave anything out.
        if state.compaction.is_asked:
            yield "asked"
        if state.compaction.waiting:
            yield "summary"
        room = budget.window_of(state, state.settings).room_tokens
        is_long = expected_tokens(state.models.measure, kinds) > room
        if is_long or conversation.count(wire) > state.settings.context.max_messages:
            yield "full"

    async def _compacted(
        self,
        reason: Reason,
        state: State,
        conversation: Conversation,
        wire: Wire,
        left_microusd: int = budget.UNLIMITED,
    ) -> ContextCompacted | SummaryDiscarded | None:
        """Return the compaction of the view; None if nothing can be left out of it."""
        assert state.settings is not None
        settings, base_bytes = state.settings, len(self._base)
        size_bytes = base_bytes + conversation.size_bytes(wire)
        tokens = expected_tokens(state.models.measure, conversation.kinds(wire, base_bytes))
        context, window = settings.context, budget.window_of(state, settings)
        room = window.room_tokens
        target = min(int(window.tokens * context.compact_to), room)
        if reason == "last_pass":
            aim_bytes = most_bytes = budget.affordable_bytes(state, settings, left_microusd) - base_bytes
        else:
            # What stays may be of other kinds than the whole. If it is still too large, it is compacted again, and
            # by its own rate.
            aim_bytes, most_bytes = (most * size_bytes // tokens - base_bytes for most in (target, room))
        if reason in ("summary", "asked"):
            # However small the view is, a summary or a person who asks makes it smaller: from `at` to `to`. The last
            # turn stays whole as long as the window takes it.
            smaller = int(conversation.size_bytes(wire) * context.compact_to / context.compact_at)
            aim_bytes = min(aim_bytes, smaller)

        def cut() -> ContextCompacted | SummaryDiscarded | None:
            return compacted(reason, state, conversation, wire, aim_bytes, most_bytes, self._offered)

        is_long = size_bytes > IN_THREAD_FROM_BYTES
        return await asyncio.to_thread(cut) if is_long else cut()

    async def _prefix_bytes(self, state: State, model: ModelFacts, edit: Edit) -> int:
        """Return how many of its first bytes the last request had too."""
        before = state.models.base
        if not before or state.models.model != model.name:
            return 0
        if before == self._base_sha256:
            return edit.kept_bytes
        return common_prefix(await self._ports.store.blobs.get(before), self._base)

    def _fresh_bytes(self, state: State, edit: Edit) -> int:
        """Return how many bytes of the request the last one did not have. A last pass shares a part of its base."""
        is_last_pass = state.run is not None and bool(state.run.landing)
        is_new = state.models.base != self._base_sha256 and not is_last_pass
        return edit.fresh_bytes + (len(self._base) if is_new else 0)

    async def _set_base(self, wire: Wire, model: ModelFacts, prompted: Prompted, is_last_pass: bool) -> bool:
        """Set everything before the messages, and return whether it lists tools.

        What was sent before is sent again, byte for byte, even if this version would encode it otherwise.
        """
        has_tools = wire.keeps_tools or not is_last_pass
        key = (model, prompted.blob, prompted.tools, wire.name, has_tools)
        if self._base_key != key:
            blobs, was_sent = (
                self._ports.store.blobs,
                (prompted.model, prompted.wire) == (model.name, wire.name),
            )
            specs = await recorded_tools(blobs, prompted) if has_tools else ()
            if has_tools and prompted.base and was_sent:
                self._base, self._base_sha256 = await blobs.get(prompted.base), prompted.base
            else:
                self._base = wire.base(model, (await blobs.get(prompted.blob)).decode(), specs)
                self._base_sha256 = await blobs.put(self._base)
            self._offered, self._base_key = tuple([spec.name for spec in specs]), key
        return bool(self._offered)

    async def _with_verdict(self, told: Told, settings: Settings) -> Told:
        """Return what a call says; an answer with its verdict, if the run has a schema."""
        judge, output = self._ports.judge, settings.output
        if judge is None or not output.schema or not isinstance(told.said, Answer):
            return told
        return replace(told, verdict=await judge(output, told.said.text))

    async def admission(self, action: Admit, state: State) -> Admission | Probed | Lost:
        """Return what the gates say; for an interrupted call that can be probed, whether it happened."""
        assert state.settings is not None
        tools, call, before = self._ports.tools, action.call, action.call.interrupted
        if call.name in TELLING:  # nothing runs, and only the masked copy is recorded: it is all that counts
            call = replace(call, is_masked=False)
        original = self._originals.of(state.session, call)
        arguments = call.arguments if original is None else original.written or original.arguments
        proposed = ToolCall(call.ref, call.name, arguments, call.call_id)
        now_ms = self._ports.clock.now_ms()
        proposal = Proposal(
            proposed,
            state.session,
            state.settings,
            principal=state.principal,
            labels=state.labels,
            taint=state.taint,
            covered=state.run.covered if state.run is not None else (),
            grants=state.grants,
            now_ms=now_ms,
            started=_started_beside(call, state, now_ms),
            has_plan=state.plan.is_made,
            written=state.progress.written,
            is_approved=call.permission is not None,
            check=self._check,
        )
        if before is not None and before.on_interrupt == "probe" and before.expects is not None:
            probed = await tools.probe(proposal, before.expects)
            if probed.happened != "no":
                return probed
        if original is None:
            return Lost()
        admission = await self._judged(call, state, original, proposal)
        if isinstance(admission, Told):
            return await self._with_verdict(admission, state.settings)
        if call.permission is not None and not _is_allowed(call, call.permission, state.settings, admission):
            proposal = replace(proposal, is_approved=False)
            return await self._judged(call, state, original, proposal)
        if state.deferred and isinstance(admission, Asked):
            return await self._made_again(call, state, original, proposal, admission)
        return admission

    async def _judged(self, call: Call, state: State, original: Original, proposal: Proposal) -> Admission:
        """Return what the gates say about a call, as it may be stored. Remember what it reaches if it may run."""
        admission = await self._ports.tools.admit(proposal)
        of_turn = {each.call_id for each in state.turn.calls} - {call.call_id}
        self._allowed = {id_: each for id_, each in self._allowed.items() if id_ in of_turn}
        if isinstance(admission, Allowed) and admission.reach != NO_REACH:
            runs = replace(proposal.call, arguments=admission.arguments)  # hooks may have changed them
            self._allowed[call.call_id] = replace(proposal, call=runs), admission.reach
        return self._originals.masked(state.session, call, original, admission)

    async def is_as_allowed(self, call_id: str) -> bool:
        """Return whether a call that is about to start reaches what it reached when the gates let it pass."""
        if call_id not in self._allowed:
            return True
        proposal, reach = self._allowed.pop(call_id)
        return await self._ports.tools.reach(proposal) == reach

    async def _made_again(
        self, call: Call, state: State, original: Original, proposal: Proposal, asked: Asked
    ) -> Admission:
        """Return what the gates say about a call with the approval that it got when it was made before."""
        assert state.settings is not None
        sha256 = bound(call.name, state.settings.tools.workspace, asked).sha256
        found = deferred.approved(state, sha256)
        if found is None:
            return asked
        allowed = await self._judged(call, state, original, replace(proposal, is_approved=True))
        permission = Permission(found.id, found.sha256)
        if not isinstance(allowed, Allowed) or not _is_allowed(call, permission, state.settings, allowed):
            return asked
        decisions = [each for each in allowed.decisions if each.by != APPROVAL]
        return replace(allowed, decisions=(*decisions, deferred.permission_of(found)))


def _model(step: PrepareRequest | PrepareSide, state: State) -> str:
    """Return the name of the model that the request is for."""
    return (facts_for(state, step.purpose) if isinstance(step, PrepareSide) else facts(state)).name


def _started_beside(call: Call, state: State, now_ms: int) -> int:
    """Return how many other calls started within the last hour; 0 if nothing limits them."""
    if state.settings is None or not state.settings.policy.actions_per_hour:
        return 0
    return pace.started(state.starts, now_ms) - (call.interrupted is not None)


def _has_schema(call: Call, state: State) -> bool:
    return call.name == ANSWER and state.settings is not None and bool(state.settings.output.schema)


def _is_allowed(call: Call, permission: Permission, settings: Settings, admission: Admission) -> bool:
    """Return whether the call that passed the gates is exactly the one that a person approved."""
    match admission:
        case Refused() | Told():
            return True
        case Allowed() | Asked():
            return bound(call.name, settings.tools.workspace, admission).sha256 == permission.sha256
