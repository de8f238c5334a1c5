"""Runs attempts: an action becomes an effect, and its outcome becomes data.

Redaction, clipping and the blob of a long output happen here, before any event exists. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from holdfast.context.clip import clean, clip
from holdfast.context.handles import READ_OUTPUT, handle_of, how_to_read
from holdfast.core.budget import received_bytes
from holdfast.core.causes import Outcome
from holdfast.core.evidence import evidence_of
from holdfast.core.model_calls import most_tool_calls
from holdfast.core.state import State, facts
from holdfast.core.wanted import Attempt, CallModel, Notify, RunHook, RunTool
from holdfast.errors import Fenced, Lapsed, SecretsSealed, StorageError
from holdfast.protocol.failures import SAID_CHARS, Failure, FailureCode
from holdfast.protocol.hooks import failure_of
from holdfast.protocol.ids import call_id
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.media import weight_of
from holdfast.protocol.messages import (
    Attachment,
    Finish,
    Media,
    ModelReply,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Verdict,
    calls_of,
    text_of,
)
from holdfast.protocol.notify import Notified
from holdfast.protocol.outcomes import AttemptResult, ModelCut, ModelFailure
from holdfast.protocol.ports import CallContext, Check, Delta, Medium, ModelAttempt, Provider, RawResult
from holdfast.protocol.request import Purpose
from holdfast.protocol.settings import Output, Settings, name_of
from holdfast.protocol.tools import KNOWN, BackgroundProcess, CallResult, own_result
from holdfast.protocol.traffic import SHOWN_LINES, Requests, Traffic, shortened, traffic_of
from holdfast.protocol.trust import Trust
from holdfast.redact import Redactor, StreamRedactor, split_at
from holdfast.runtime.apart import Apart, Left
from holdfast.runtime.border import encodable
from holdfast.runtime.bus import Bus
from holdfast.runtime.exchange import Exchange
from holdfast.runtime.hooked import CUT, answer_of
from holdfast.runtime.in_text import provider_of
from holdfast.runtime.masking import masked_copy
from holdfast.runtime.originals import Originals
from holdfast.runtime.ports import Ports

T = TypeVar("T")
MAX_TOOL_TEXT_CHARS = 24_000
MAX_SIDE_CHARS = 64_000
"""The longest answer of a side call that is kept."""
MAX_DETAIL_CHARS = 2_000
MAX_RAW_DETAIL_CHARS = 64 << 10
"""So much is masked before it is cut: the part of a value at its beginning is not in what is kept."""
MAX_ORIGIN_CHARS = 200
MAX_COMMAND_CHARS = 100
"""So much of a command that goes on in the background is in its record."""
CUT_NUMBER = "the answer ends at the output limit inside a number"
GIVEN_UP = (
    "This call did not run: its arguments contained what looks like a secret, and there was no room to keep them in "
    "memory. Make it again, with smaller arguments or without the secret."
)
CHANGED = (
    "This call did not run: a program or file that it names changed after it was allowed. Make it again, so that "
    "it is judged as it is now."
)
NO_NOTIFIER = "the configuration of this process has no [notify] command"
SURVEY_S = 5.0
"""How long a response waits for the look at the workspace that began with its request."""
UNKNOWN_WORKSPACE = "unknown"
"""The state of a workspace that cannot be looked at. It is always the same one, so it counts as no progress."""
OVERDUE_S = 5.0
"""How much longer than its time limit a call may take: to notice the limit, and to clear up."""
IGNORED = "{name} did not stop in time. It ignored its cancellation and may still be running."
JUST_NOW_MS = 100
"""An attempt that begins so soon after a call does not look at the secret files again."""
STOPPED = "The call was stopped before it ended. What it did until then stays done."
NOT_BEGUN = "The call was stopped before it began."
IN_THREAD_FROM_CHARS = 65_536
"""Redacting a longer text would block all other sessions."""

DeltaKind = Literal["text", "reasoning", "tool_output"]

_CODES: dict[str, FailureCode] = {"timeout": "tool_timeout", "error": "tool_execution"}


class Runner:
    """Runs the attempts of one session."""

    def __init__(
        self,
        ports: Ports,
        bus: Bus,
        check: Check,
        originals: Originals,
        apart: Apart,
        is_as_allowed: Callable[[str], Awaitable[bool]],
        exchange: Exchange,
    ) -> None:
        """`is_as_allowed`: returns whether a call still reaches what it reached when the gates let it pass."""
        self._ports = ports
        self._bus = bus
        self._session = exchange.session
        self._check = check
        self._originals = originals
        self._apart = apart
        self._is_as_allowed = is_as_allowed
        self._exchange = exchange
        self._looked_ms = -JUST_NOW_MS
        """When a call ended and the secret files of the workspace were looked at."""

    async def run(self, action: Attempt, state: State, body: bytes, settings: Settings) -> Outcome:
        """Run one attempt to its end. If it is cancelled, its outcome is a cut response or a cancelled call.

        Raises:
            Fenced: the lease ended before the effect. Nothing of the attempt is recorded.
            StorageError: the store failed, so nothing can be recorded. This is not an outcome of the attempt.
            SecretsSealed: the same; nobody could mask the outcome.
        """
        started_ms = self._ports.clock.uptime_ms()
        first = _FirstDelta(self._ports, started_ms)
        result: AttemptResult
        try:
            if started_ms > self._looked_ms + JUST_NOW_MS:
                reading = self._ports.secret_files(settings.tools.workspace)
                if reading is not None:
                    await reading
            if type(action) is CallModel:
                work = self._call_model(action, state, body, settings, first)
                looks = state.progress.is_open and action.model_call.purpose == "work"
                result = await (self._looking(work, state, settings) if looks else work)
            elif type(action) is RunTool:
                result = await self._run_tool(action, state, settings)
            elif isinstance(action, Notify):
                result = await self._notify(action, settings)
            else:
                assert isinstance(action, RunHook)
                result = await answer_of(self._ports, self._apart, action, state, self._check)
        except (Fenced, SecretsSealed, StorageError):
            raise
        except asyncio.CancelledError:  # before its effect: from there on, the work itself says what was cut
            result = _cut(action)
        except Exception as error:
            result = _crashed(action, error, self._redactor(action))
        duration_ms = self._ports.clock.uptime_ms() - started_ms
        if type(result) is CallResult:
            result = replace(result, duration_ms=duration_ms)
        aside = await self._ports.tools.put_aside(self._session, is_first=False)
        return Outcome(
            action.key, result, duration_ms, first.after_ms, self._ports.redact(aside) if aside else ""
        )

    async def _notify(self, action: Notify, settings: Settings) -> Notified:
        notifier = self._ports.notifier
        if notifier is None:
            return Notified("failed", NO_NOTIFIER)
        try:
            return await notifier.notify(self._session, settings.tools.workspace, action.due, self._check)
        except (Fenced, StorageError):
            raise
        except Exception as error:  # a session does not end because nobody hears of it
            return Notified("failed", self._ports.redact(f"it could not be run ({type(error).__name__})"))

    # --- models ---------------------------------------------------------------------------------

    async def _call_model(
        self, action: CallModel, state: State, body: bytes, settings: Settings, first: _FirstDelta
    ) -> AttemptResult:
        purpose = action.model_call.purpose
        words: list[str] = []
        arrived: list[ModelCut] = []
        teller = _Teller(self._bus, self._ports.redact, self._session, action.key)

        def on_delta(delta: Delta) -> None:
            first.note()
            if delta.kind == "text":
                words.append(delta.text)
            if purpose == "work":  # nobody reads along with a side call
                teller.tell(delta.kind, delta.text)

        try:
            model = action.model_call.facts
            found = await self._resolved(action.key, model)
            provider = provider_of(found, model, self._ports.tools, settings)
            attempt = ModelAttempt(
                facts=model,
                body=body,
                is_streaming=settings.model.is_streaming,
                idle_s=settings.limits.idle_s,
                outcomes=_outcomes(state, purpose),
                on_delta=on_delta,
                on_cut=arrived.append,
                check=self._check,
                purpose=purpose,
            )
            async with asyncio.timeout(settings.limits.request_s) as deadline:
                reply = await provider.respond(attempt)
        except asyncio.CancelledError:
            text = "".join(words)
            cut = _arrived(arrived, words)
            return replace(cut, text=await _masked(text, self._ports.redact, is_cut=True))
        except TimeoutError:
            if not deadline.expired():
                raise
            return _too_long(_arrived(arrived, words), settings.limits.request_s)
        finally:
            teller.flush()
        if isinstance(reply, ModelFailure):
            failure = self._exchange.refused(action.key, model, self._safe(reply.failure))
            return replace(reply, failure=failure)
        redact = self._redactor_for(reply)
        if purpose != "work":
            return await self._aside(reply, redact)
        parts: list[Part] = []
        calls, most = 0, most_tool_calls(reply.finish)
        for part in reply.parts:
            is_call = type(part) is ToolCall
            calls += is_call
            if calls > most and is_call:  # nobody takes it
                parts.append(part)
            elif (safe := await self._part(part, call_id(state.turn.number, calls), redact)) is not None:
                parts.append(safe)
        return replace(
            reply,
            parts=tuple(parts),
            model=redact(reply.model),
            request_ref=redact(reply.request_ref),
            verdict=await self._verdict(reply.finish, tuple(parts), settings.output),
        )

    async def _resolved(self, key: str, model: ModelFacts) -> Provider:
        which, resolve_key = self._exchange.which(key), self._ports.resolve_key
        if not which or resolve_key is None:
            return await self._ports.resolve(model.name)
        return await resolve_key(model.name, which)

    async def _looking(
        self, work: Coroutine[Any, Any, AttemptResult], state: State, settings: Settings
    ) -> AttemptResult:
        """Run a model call. Meanwhile, look at what the turn before has made of the workspace."""
        survey = asyncio.to_thread(
            self._ports.tools.survey, settings.tools.workspace, state.created_ms, state.progress.named
        )
        look = asyncio.create_task(survey)
        try:
            result = await work
            if not isinstance(result, ModelReply):
                return result
            await asyncio.wait({look}, timeout=SURVEY_S)
            is_known = look.done() and not look.cancelled() and look.exception() is None
            return replace(result, workspace=look.result() if is_known else UNKNOWN_WORKSPACE)
        finally:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)

    async def _aside(self, reply: ModelReply, redact: Redactor) -> ModelReply:
        """Return the response of a side call as it may be stored: its words, and how many calls it has."""
        whole = text_of(reply.parts)
        said = clean(whole[:MAX_SIDE_CHARS])
        is_cut = len(whole) > MAX_SIDE_CHARS
        # Where it is cut, it may end within a secret.
        text = await _masked(said, self._ports.redact if is_cut else redact, is_cut=is_cut)
        return replace(
            reply,
            parts=(Text(text), *[ToolCall("", "", "")] * len(calls_of(reply.parts))),
            model=redact(reply.model),
            request_ref=redact(reply.request_ref),
            received_bytes=received_bytes(reply),
            is_masked=text != said,
        )

    async def _verdict(self, finish: Finish, parts: tuple[Part, ...], output: Output) -> Verdict | None:
        """Return whether an answer matches the run's schema; None if the response is not an answer. The words are
        judged as they are stored: redacted.
        """
        judge = self._ports.judge
        if judge is None or not output.schema or calls_of(parts) or not (text := text_of(parts)).strip():
            return None
        if (
            finish == "length" and text[-1].isdigit()
        ):  # of all JSON values, only a number may go on after its cut
            return Verdict(name_of(output), CUT_NUMBER)
        return await _to_its_end(judge(output, text))

    def _redactor_for(self, reply: ModelReply) -> Redactor:
        """Return the redactor for the texts of a response, most of which have only a few characters."""
        texts = [reply.model, reply.request_ref]
        for part in reply.parts:
            match part:  # a call comes first: most responses have one, and to ask for a class takes its time
                case ToolCall(ref=ref, name=name, arguments=arguments):
                    texts += (ref, name, arguments)
                case Text(text=text):
                    texts.append(text)
                case Reasoning(text=text, payload=payload):
                    texts += (text, payload)
                case ToolResult() | Media():
                    pass
        is_short = sum(map(len, texts)) <= IN_THREAD_FROM_CHARS
        return self._ports.redact.for_all(texts) if is_short else self._ports.redact

    async def _part(self, part: Part, next_call: str, redact: Redactor) -> Part | None:
        """Return the part as it may be stored; None if it may not be stored and cannot be changed."""
        match part:
            case ToolCall():
                return await self._call(part, next_call, redact)
            case Text(text=text):
                return Text(await _masked(text, redact))
            case Reasoning(payload=""):
                return replace(part, text=await _masked(part.text, redact))
            case Reasoning(text=text, payload=payload):  # it is signed
                is_safe = await _masked(text, redact) == clean(text) and redact(payload) == payload
                return part if is_safe else None
            case ToolResult() | Media():  # a model cannot say what a tool returned, or what a person attached
                return None

    async def _call(self, call: ToolCall, id_: str, redact: Redactor) -> ToolCall:
        """Return the call as it may be stored. If its arguments are masked, keep the original until the call ends."""
        arguments = encodable(call.arguments)
        whole = self._ports.redact if "\\" in arguments else redact  # an escape would have hidden a secret
        if len(arguments) > IN_THREAD_FROM_CHARS:
            copy = await _to_its_end(asyncio.to_thread(masked_copy, arguments, whole))
        else:
            copy = masked_copy(arguments, whole)
        if copy.values:
            self._originals.keep(self._session, id_, arguments, copy)
        return replace(
            call,
            ref=redact(call.ref),
            name=redact(call.name),
            arguments=copy.text,
            is_masked=bool(copy.values),
        )

    # --- tools ----------------------------------------------------------------------------------

    async def _run_tool(self, action: RunTool, state: State, settings: Settings) -> CallResult:
        call = action.call
        original = self._originals.of(self._session, call)
        if original is None:
            return own_result("error", GIVEN_UP, Failure("tool_execution", GIVEN_UP))
        teller = _Teller(self._bus, original.redact, self._session, call.call_id)
        is_left = False

        def on_output(text: str) -> None:
            if not is_left:
                teller.tell("tool_output", text)

        def check() -> int:
            if is_left:
                raise Lapsed
            return self._check()

        context = CallContext(
            session=self._session,
            call_id=call.call_id,
            key=f"{self._session}:{call.call_id}",
            workspace=settings.tools.workspace,
            timeout_s=action.attempt.timeout_s,
            idle_s=settings.limits.idle_s,
            on_output=on_output,
            check=check,
            deps=next(reversed(self._ports.deps.get(self._session, ())), None),
            expects=action.attempt.expects,
            walled=action.attempt.walled,
            offers=lambda name: any(spec.name == name for spec in self._ports.tools.specs(settings)),
            policy=settings.policy,
            reads_images=facts(state).reads_images,
            capabilities=(original.redact, self._exchange.outside(call.call_id)),
        )
        try:
            await self._exchange.turn(action.key, call.name, action.attempt.timeout_s)
            async with self._ports.tools.place(self._session, call.resources or ()):
                if not await self._is_as_allowed(call.call_id):  # it may have waited for the place
                    return own_result("error", CHANGED, Failure("policy_denied", CHANGED))
                work = self._ports.tools.run(call.name, original.arguments, context)
                raw = await self._apart.run(work, action.attempt.timeout_s + OVERDUE_S)
        except Left:
            return own_result("unknown", IGNORED.format(name=call.name))
        except asyncio.CancelledError:
            return own_result("cancelled", STOPPED, Failure("cancelled", STOPPED))
        finally:
            is_left = True
            teller.flush()
        # The call may have changed them.
        reading = self._ports.secret_files(settings.tools.workspace)
        if reading is not None:
            await _to_its_end(reading)
        self._looked_ms = self._ports.clock.uptime_ms()
        return await self._recorded(raw, original.redact, action, settings)

    async def _recorded(
        self, raw: RawResult, redact: Redactor, action: RunTool, settings: Settings
    ) -> CallResult:
        """Return the result as it may be stored: redacted, and clipped with the whole in a blob. Media are blobs."""
        whole = await _masked(raw.text, redact)
        blob = ""
        text = whole
        if len(whole) > MAX_TOOL_TEXT_CHARS:
            blob = await _to_its_end(self._ports.store.blobs.put(whole.encode("utf-8", "replace")))
            text = await self._clipped(whole, self._way_to(blob, settings), redact)
        failure = None
        if raw.status in _CODES:
            _, end = split_at(redact, raw.detail, len(raw.detail) - MAX_RAW_DETAIL_CHARS)
            detail = redact(end)[-MAX_DETAIL_CHARS:]
            failure = Failure(_CODES[raw.status], text[:200], detail)
        trust, name = raw.trust or "untrusted", f"{action.call.name} {action.call.call_id}"
        attachments = [await self._attached(each, name, trust) for each in raw.media]
        return CallResult(
            raw.status,
            text + KNOWN if raw.is_known else text,
            failure,
            blob,
            len(whole),
            trust=trust,
            attachments=tuple(attachments),
            evidence=evidence_of(
                whole,
                raw.status,
                is_negative=raw.is_negative,
                ran=action.attempt.effect == "exec",
                arguments=action.call.arguments,
            ),
            origin=_origin(raw, action.call.name, redact),
            is_private=None if raw.is_private == (trust == "data") else raw.is_private,
            background=_masked_background(raw.background, redact),
            traffic=await self._traffic(raw.requests, redact) if raw.requests.exchanges else None,
        )

    async def _traffic(self, requests: Requests, redact: Redactor) -> Traffic:
        """Return the requests of a call as they may be stored. A blob has all, if they are many."""
        whole = await _masked(requests.text(), redact)
        lines, blob = [shortened(line) for line in whole.split("\n")], ""
        if len(lines) > SHOWN_LINES:
            content = "\n".join(lines).encode("utf-8", "replace")
            blob = await _to_its_end(self._ports.store.blobs.put(content))
        return traffic_of(requests, lines, blob)

    def _way_to(self, blob: str, settings: Settings) -> str:
        """Return how the model reads a whole output, as far as it may."""
        if any(spec.name == READ_OUTPUT for spec in self._ports.tools.specs(settings)):
            return how_to_read(handle_of(blob))
        return f"the full text is blob {blob}"

    async def _clipped(self, whole: str, rest: str, redact: Redactor) -> str:
        """Return the clipped text. It is redacted once more: what its shape shows may say a secret plainly that was
        written with escapes."""
        if len(whole) > IN_THREAD_FROM_CHARS:
            clipped = await _to_its_end(asyncio.to_thread(clip, whole, MAX_TOOL_TEXT_CHARS, rest))
        else:
            clipped = clip(whole, MAX_TOOL_TEXT_CHARS, rest)
        return await _masked(clipped, redact)

    async def _attached(self, medium: Medium, name: str, trust: Trust) -> Attachment:
        blob = await _to_its_end(self._ports.store.blobs.put(medium.content))
        weight = await _to_its_end(asyncio.to_thread(weight_of, medium.media_type, medium.content))
        return Attachment("tool", name, medium.media_type, len(medium.content), blob, weight, trust)

    # --- safety ---------------------------------------------------------------------------------

    def _redactor(self, action: Attempt) -> Redactor:
        """Return the redactor for everything that the attempt returns."""
        original = self._originals.of(self._session, action.call) if isinstance(action, RunTool) else None
        return original.redact if original is not None else self._ports.redact

    def _safe(self, failure: Failure) -> Failure:
        redact = self._ports.redact
        return replace(
            failure,
            message=redact(failure.message),
            detail=redact(failure.detail, is_cut=True),
            said=redact(failure.said, is_cut=True)[:SAID_CHARS],
        )


def _outcomes(state: State, purpose: Purpose) -> int:
    """Return how many model calls for the purpose have an outcome."""
    return state.models.outcomes if purpose == "work" else state.side.tally(purpose).outcomes


def _masked_background(process: BackgroundProcess | None, redact: Redactor) -> BackgroundProcess | None:
    if process is None:
        return None
    # Masked before it is cut: what is masked at an end tells who chose the text whether it ends in a secret.
    return replace(process, command=clean(redact(process.command))[:MAX_COMMAND_CHARS])


async def _masked(text: str, redact: Redactor, *, is_cut: bool = False) -> str:
    """Return the text as it may be stored. A thread searches a long one."""
    if len(text) > IN_THREAD_FROM_CHARS:
        return await _to_its_end(asyncio.to_thread(lambda: clean(redact(text, is_cut=is_cut))))
    return clean(redact(text, is_cut=is_cut))


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns, also when the attempt is cancelled meanwhile: the effect is over, and its outcome
    is known."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


class _Teller:
    """Publishes deltas, so that together they are what will be stored. It masks secrets across their borders,
    including a secret that began before the first listener came.
    """

    def __init__(self, bus: Bus, redact: Redactor, session: str, key: str) -> None:
        self._bus = bus
        self._redact = redact
        self._session = session
        self._key = key
        self._streams: dict[DeltaKind, StreamRedactor] = {}

    def tell(self, kind: DeltaKind, text: str) -> None:
        """Handle a delta. Withhold what may be the beginning of a secret."""
        stream = self._streams.get(kind)
        if stream is None:
            stream = self._streams[kind] = StreamRedactor(self._redact)
        if self._bus.is_heard(self._session):
            self._show(kind, stream.feed(text))
        else:
            stream.skip(text)

    def flush(self) -> None:
        """Publish what was withheld: there are no more deltas."""
        if self._streams and self._bus.is_heard(self._session):
            for kind, stream in self._streams.items():
                self._show(kind, stream.flush())

    def _show(self, kind: DeltaKind, text: str) -> None:
        if text:
            self._bus.publish(self._session, (Delta(kind, clean(text), self._session, self._key),))


class _FirstDelta:
    """When the first delta arrived."""

    def __init__(self, ports: Ports, started_ms: int) -> None:
        self._clock = ports.clock
        self._started_ms = started_ms
        self.after_ms = 0

    def note(self) -> None:
        if not self.after_ms:
            self.after_ms = max(self._clock.uptime_ms() - self._started_ms, 1)


def _cut(action: Attempt) -> AttemptResult:
    """Return the outcome of an attempt that was cancelled before its effect."""
    if isinstance(action, CallModel):
        return ModelCut("")
    if isinstance(action, RunHook):
        return CUT
    return own_result("cancelled", NOT_BEGUN, Failure("cancelled", NOT_BEGUN))


def _arrived(cuts: list[ModelCut], words: list[str]) -> ModelCut:
    """Return what had come of a response that was cut: what the provider says, else the words."""
    return cuts[0] if cuts else ModelCut("", received_bytes=len("".join(words).encode()))


def _too_long(cut: ModelCut, request_s: float) -> ModelFailure:
    message = f"The response was not whole after {request_s:g} s, which is the limit of [limits] request."
    return ModelFailure(Failure("provider_transient", message), cut.usage, cut.estimated, cut.received_bytes)


def _crashed(action: Attempt, error: Exception, redact: Callable[[str], str]) -> AttemptResult:
    """Return a bug at an edge as the failure of one attempt."""
    detail = redact("".join(traceback.format_exception(error)))[-MAX_DETAIL_CHARS:]
    if isinstance(action, CallModel):
        failure = Failure("provider_fatal", "The adapter of the provider failed. See the journal.", detail)
        return ModelFailure(failure, estimated=("input", "output"))
    if isinstance(action, RunHook):
        return failure_of(action.hook, f"this is a bug ({type(error).__name__})")
    failure = Failure("tool_execution", "The tool failed.", detail)
    return own_result("error", failure.message, failure)


def _origin(raw: RawResult, name: str, redact: Redactor) -> str:
    """Return where a result comes from: the tool, and what it read."""
    if not raw.origin:
        return name
    read = " ".join(redact(clean(raw.origin)).split())[:MAX_ORIGIN_CHARS]
    return f"{name} {read}" if read else name
