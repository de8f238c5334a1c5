"""Real HTTP with a server that also misbehaves: each fault is a failure of its class, never half a call."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import Message, ModelReply, Text, Usage, calls_of, text_of
from holdfast.protocol.outcomes import ModelCut, ModelFailure
from holdfast.protocol.ports import Delta, ModelAttempt
from holdfast.providers import http as http_module
from holdfast.providers.http import HttpPool, is_loopback, proxies_of, proxy_for
from holdfast.providers.registry import PROVIDERS, make_provider
from holdfast.testing.clock import never_over
from holdfast.testing.conformance_provider import QUESTION, attempt, written_request
from holdfast.testing.model_replies import Fault, Reply, ReplyCall
from tests.providers.subjects import served

WIRES = pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic"])
CALL = Reply(text="Writing.", tool_calls=(ReplyCall("write_file", {"path": "a", "content": "x" * 400}),))


@pytest.mark.requirement("L7", "C15")
@WIRES
@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("fault", ["stall", "cut", "reset", "bad_json", "wrong_shape", "html", "empty"])
async def test_a_fault_is_a_passing_failure_and_the_next_attempt_is_whole(
    name: str, is_streaming: bool, fault: Fault
) -> None:
    broken = Reply(text=CALL.text, tool_calls=CALL.tool_calls, fault=fault)
    async with served(name, [broken, CALL]) as subject:
        first = await attempt(subject, is_streaming=is_streaming, idle_s=0.1 if fault == "stall" else 60)
        second = await attempt(subject, is_streaming=is_streaming)
    assert isinstance(first, ModelFailure)
    assert first.failure.code == "provider_transient"
    assert isinstance(second, ModelReply)
    assert json.loads(calls_of(second.parts)[0].arguments) == CALL.tool_calls[0].arguments


BEGUN_S = 1.0
"""A silence before which the first part of a response has arrived, also on a busy machine."""


@pytest.mark.requirement("H3")
@WIRES
@pytest.mark.parametrize("fault", ["stall", "cut", "reset"])
async def test_a_stream_that_breaks_tells_what_had_arrived(name: str, fault: Fault) -> None:
    reply = Reply(text="é" * 600, reasoning="Hm.", tool_calls=(ReplyCall("read"),), pieces=20, fault=fault)
    shown: list[Delta] = []
    async with served(name, [reply]) as subject:
        result = await attempt(subject, idle_s=BEGUN_S if fault == "stall" else 60, on_delta=shown.append)
    assert isinstance(result, ModelFailure)
    # Messages names what it read at the beginning, the others everything at the end.
    expected = (Usage(10), ("output",)) if name == "anthropic" else (Usage(), ("input", "output"))
    assert (result.usage, result.estimated) == expected
    assert result.received_bytes == sum(len(delta.text.encode()) for delta in shown) > 100


HALF = Reply(text="é" * 600, chunk_bytes=100, fault="stall")
"""A response that is not a stream: more than 600 bytes of it come, and then nothing."""


@pytest.mark.requirement("H3")
@WIRES
@pytest.mark.parametrize("fault", ["stall", "cut"])
async def test_an_answer_that_is_not_a_stream_and_breaks_tells_what_had_arrived(
    name: str, fault: Fault
) -> None:
    async with served(name, [msgspec.structs.replace(HALF, fault=fault)]) as subject:
        result = await attempt(subject, is_streaming=False, idle_s=BEGUN_S if fault == "stall" else 60)
    assert isinstance(result, ModelFailure)
    assert (result.usage, result.estimated) == (Usage(), ("input", "output"))
    assert result.received_bytes >= 100


@pytest.mark.requirement("H3")
@WIRES
async def test_an_answer_that_is_not_a_stream_and_is_cancelled_tells_what_had_arrived(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_come, read = asyncio.Event(), aiohttp.StreamReader.readany

    async def reading(reader: aiohttp.StreamReader) -> bytes:
        chunk = await read(reader)
        has_come.set()
        return chunk

    monkeypatch.setattr(aiohttp.StreamReader, "readany", reading)
    cuts: list[ModelCut] = []
    async with served(name, [HALF]) as subject:
        call = asyncio.create_task(attempt(subject, is_streaming=False, on_cut=cuts.append))
        async with asyncio.timeout(60):
            await has_come.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    (cut,) = cuts
    assert (cut.usage, cut.estimated) == (Usage(), ("input", "output"))
    assert cut.received_bytes >= 100


@pytest.mark.requirement("H3")
@WIRES
@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])
async def test_a_request_that_was_sent_may_be_charged_and_one_that_was_refused_is_not(
    name: str, is_streaming: bool
) -> None:
    silent = Reply(text="late", delay_s=30)
    refused = [Reply(status=status) for status in (400, 401, 429, 500, 503)]
    foreign = [Reply(fault="html"), Reply(fault="wrong_shape")]
    async with served(name, [silent, *refused, *foreign]) as subject:
        first = await attempt(subject, is_streaming=is_streaming, idle_s=0.1)
        others = [await attempt(subject, is_streaming=is_streaming) for _ in refused]
        strange = [await attempt(subject, is_streaming=is_streaming) for _ in foreign]
    assert isinstance(first, ModelFailure)
    assert (first.usage, first.estimated, first.received_bytes) == (Usage(), ("input", "output"), 0)
    for other in others:
        assert isinstance(other, ModelFailure)
        assert (other.usage, other.estimated, other.received_bytes) == (Usage(), (), 0), other
    for each in strange:  # whatever answers with a 200 may have charged for the request
        assert isinstance(each, ModelFailure)
        assert (each.usage, each.estimated) == (Usage(), ("input", "output")), each


@pytest.mark.requirement("H3")
@WIRES
@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])
async def test_half_an_answer_that_claims_to_be_whole_may_be_charged(name: str, is_streaming: bool) -> None:
    halves = [Reply(text="word " * 100, pieces=pieces, fault="bad_json") for pieces in (1, 20)]
    async with served(name, halves) as subject:
        results = [await attempt(subject, is_streaming=is_streaming) for _ in halves]
    for result in results:
        assert isinstance(result, ModelFailure)
        assert "output" in result.estimated
    assert isinstance(results[1], ModelFailure)
    assert results[1].received_bytes > 100


@pytest.mark.requirement("H3")
@WIRES
async def test_half_a_call_counts_as_received(name: str) -> None:
    call = ReplyCall("write_file", '{"path":"a","content":"' + "x" * 500)
    async with served(name, [Reply(tool_calls=(call,), finish="length", usage=None)]) as subject:
        result = await attempt(subject)
    assert isinstance(result, ModelReply), result
    assert calls_of(result.parts) == ()
    assert result.received_bytes == len(call.text)


@pytest.mark.requirement("L7")
@WIRES
async def test_a_stream_that_trickles_is_not_silent(name: str, skip_ahead: Callable[[float], None]) -> None:
    """It takes longer than the longest silence, and no silence in it is that long: time flies here."""
    idle_s, loop = 30.0, asyncio.get_running_loop()
    reply = Reply(text="slowly " * 20, pieces=20, chunk_bytes=100, pause_s=2.0)

    async def hurry() -> None:
        while True:
            skip_ahead(0.05)
            await asyncio.sleep(0)

    async with served(name, [reply]) as subject:
        begun_s, hurrying = loop.time(), asyncio.create_task(hurry())
        result = await attempt(subject, idle_s=idle_s)
        hurrying.cancel()
    assert loop.time() - begun_s > idle_s
    assert isinstance(result, ModelReply), result
    assert text_of(result.parts) == "slowly " * 20


@pytest.mark.requirement("A3", "L7")
@WIRES
@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])
async def test_what_only_keeps_the_connection_alive_is_silence(name: str, is_streaming: bool) -> None:
    reply = Reply(text="Par" * 1_000, fault="ping", pause_s=0.02)
    async with served(name, [reply]) as subject, asyncio.timeout(60):
        result = await attempt(subject, is_streaming=is_streaming, idle_s=0.2)
        await subject.until_left()
    assert isinstance(result, ModelFailure), result
    assert result.failure.code == "provider_transient"
    assert "silent for 0.2 s" in result.failure.message


@pytest.mark.requirement("L2-06")
@WIRES
async def test_a_cancelled_stream_is_closed_and_its_words_were_shown(name: str) -> None:
    shown: list[Delta] = []
    has_begun = asyncio.Event()

    def show(delta: Delta) -> None:
        shown.append(delta)
        has_begun.set()

    reply = Reply(text="word " * 40_000, pieces=40_000, chunk_bytes=200, pause_s=0.05)
    async with served(name, [reply]) as subject:
        call = asyncio.create_task(attempt(subject, on_delta=show))
        async with asyncio.timeout(60):
            await has_begun.wait()
        call.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await call
            await subject.until_left()
    assert "".join(delta.text for delta in shown).startswith("word ")


@pytest.mark.requirement("H3", "L2-06")
@WIRES
async def test_a_cancelled_stream_tells_all_that_had_come_also_what_nobody_was_shown(name: str) -> None:
    """The hidden part is half a call: deltas show only whole ones."""
    write = ReplyCall("write_file", {"path": "a", "content": "x" * 4_000})
    reply = Reply(text="Hm.", tool_calls=(write, write, write), fault="stall")
    has_begun = asyncio.Event()
    cuts: list[ModelCut] = []
    async with served(name, [reply]) as subject:
        call = asyncio.create_task(
            attempt(subject, on_delta=lambda delta: has_begun.set(), on_cut=cuts.append)
        )
        async with asyncio.timeout(60):
            await has_begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    (cut,) = cuts
    expected = (Usage(10), ("output",)) if name == "anthropic" else (Usage(), ("input", "output"))
    assert (cut.usage, cut.estimated) == expected
    assert cut.received_bytes > 2_000


@pytest.mark.requirement("L7")
async def test_a_server_that_is_not_there_is_a_passing_failure_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        pool = HttpPool()
        response = await pool.post(
            f"http://user:pw@127.0.0.1:{port}/x", {}, b"{}", idle_s=60, check=never_over
        )
        await pool.aclose()
    assert isinstance(response, http_module.NoResponse)
    assert not response.was_sent
    assert response.failure.code == "provider_transient"
    assert f"127.0.0.1:{port}" in response.failure.message
    assert "pw" not in repr(response)


@pytest.mark.requirement("A4")
@WIRES
async def test_a_redirect_is_not_followed_with_the_key(name: str) -> None:
    async with served(name, [Reply(text="elsewhere")]) as other:
        moved = Reply(status=307, headers={"location": other.server.url})
        async with served(name, [moved]) as subject:
            result = await attempt(subject)
        assert isinstance(result, ModelFailure)
        assert result.failure.code == "provider_fatal"
        assert not other.server.requests


@pytest.mark.requirement("A4", "C15")
@WIRES
async def test_the_key_travels_in_its_header_and_shows_nowhere_else(name: str) -> None:
    async with served(name, [Reply(status=401, message="wrong key: sk-test-key")]) as subject:
        result = await attempt(subject)
        (request,) = subject.server.requests
        assert "sk-test-key" not in repr(subject.provider) + repr(vars(subject.provider)["wire"])
    assert request.headers["x-api-key" if name == "anthropic" else "authorization"].endswith("sk-test-key")
    assert isinstance(result, ModelFailure)
    assert result.failure.code == "provider_refused"
    assert "sk-test-key" not in repr(result)
    assert "[redacted]" in result.failure.detail


@pytest.mark.requirement("S1", "L11")
@WIRES
async def test_exact_bytes_are_sent_over_one_kept_connection(name: str) -> None:
    long = Message("user", (Text("x" * 2_000_000),))
    async with served(name, [Reply(text="ok", repeat=True)]) as subject:
        for messages in ([QUESTION], [QUESTION, QUESTION], [long], [QUESTION]):
            for is_streaming in (True, False):
                body = written_request(
                    subject.provider.wire, subject.facts, messages, is_streaming=is_streaming
                )
                result = await subject.provider.respond(
                    ModelAttempt(
                        subject.facts,
                        body,
                        is_streaming=is_streaming,
                        idle_s=60,
                        outcomes=0,
                        on_delta=lambda delta: None,
                        on_cut=lambda cut: None,
                        check=never_over,
                    )
                )
                assert isinstance(result, ModelReply), result
                assert subject.server.requests[-1].body == body
        assert subject.server.connections == 1


@pytest.mark.requirement("S1")
async def test_providers_share_the_pool_and_closing_it_leaves_nothing_open() -> None:
    async with served("openai", [Reply(text="ok", repeat=True)]) as subject:
        pool = HttpPool()
        for name in ("openai", "groq", "ollama"):
            entry, url = PROVIDERS[name], subject.server.openai_url
            provider = make_provider(entry, model="m", base_url=url, api_key="", http=pool)
            facts = ModelFacts(name, "m")
            body = written_request(provider.wire, facts, [QUESTION])
            result = await provider.respond(
                ModelAttempt(
                    facts,
                    body,
                    is_streaming=True,
                    idle_s=60,
                    outcomes=0,
                    on_delta=lambda delta: None,
                    on_cut=lambda cut: None,
                    check=never_over,
                )
            )
            assert isinstance(result, ModelReply)
        assert subject.server.connections == 1
        await pool.aclose()
        await subject.server.until(lambda server: not server.is_connected)


@pytest.mark.requirement("L7")
@WIRES
async def test_a_server_that_ignores_streaming_is_read_all_the_same(name: str) -> None:
    async with served(name, [CALL]) as subject:
        body = written_request(subject.provider.wire, subject.facts, [QUESTION], is_streaming=False)
        result = await subject.provider.respond(
            ModelAttempt(
                subject.facts,
                body,
                is_streaming=True,
                idle_s=60,
                outcomes=0,
                on_delta=lambda delta: None,
                on_cut=lambda cut: None,
                check=never_over,
            )
        )
    assert isinstance(result, ModelReply)
    assert len(calls_of(result.parts)) == 1


@pytest.mark.requirement("A3", "L7")
@WIRES
@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole"])
async def test_an_endless_response_is_given_up(
    name: str, is_streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "MAX_RESPONSE_BYTES", 10_000)
    async with served(name, [Reply(text="x" * 50_000, pieces=50)]) as subject:
        result = await attempt(subject, is_streaming=is_streaming)
    assert isinstance(result, ModelFailure)
    assert result.failure.code == "provider_fatal"


@pytest.mark.requirement("A3", "L7")
@pytest.mark.parametrize(
    "name",
    ["openai", *(pytest.param(name, marks=pytest.mark.long) for name in ("anthropic", "openai-responses"))],
)
async def test_an_event_of_20_megabytes_is_not_asked_for_again(name: str) -> None:
    call = ReplyCall("write_file", {"path": "a", "content": "x" * 40_000_000})
    async with served(name, [Reply(tool_calls=(call,))]) as subject:
        result = await attempt(subject)
    assert isinstance(result, ModelFailure)
    assert result.failure.code == "provider_fatal"
    assert "16 MiB" in result.failure.message


@pytest.mark.requirement("A3", "L7")
@pytest.mark.parametrize(  # Responses repeats them in one event
    "name", ["anthropic", pytest.param("openai", marks=pytest.mark.long)]
)
async def test_arguments_of_20_megabytes_in_many_events_are_read(name: str) -> None:
    content = "x" * 20_000_000
    async with served(name, [Reply(tool_calls=(ReplyCall("write_file", {"content": content}),))]) as subject:
        result = await attempt(subject)
    assert isinstance(result, ModelReply), result
    (call,) = calls_of(result.parts)
    assert json.loads(call.arguments) == {"content": content}


@pytest.mark.requirement("L7")
def test_a_proxy_serves_other_hosts_and_never_this_machine() -> None:
    proxies = proxies_of(
        {
            "HTTPS_PROXY": "http://upper:1",
            "https_proxy": "http://lower:1",
            "HTTP_PROXY": "http://cgi:1",
            "no_proxy": "corp.example, .internal",
            "PATH": "/bin",
        }
    )
    assert proxies == {"https": "http://lower:1", "no": "corp.example, .internal"}
    assert proxy_for("https://api.openai.com/v1", proxies) == "http://lower:1"
    assert proxy_for("http://api.openai.com/v1", proxies) is None
    for direct in (
        "https://corp.example",
        "https://a.internal/v1",
        "https://127.0.0.1:1",
        "https://[::1]/v1",
    ):
        assert proxy_for(direct, proxies) is None
    assert proxy_for("https://x.y", proxies | {"no": "*"}) is None


@pytest.mark.requirement("L7")
def test_only_this_machine_is_loopback() -> None:
    for url in ("http://localhost:1", "http://127.8.0.1", "http://[::1]:80/v1", "http://a.localhost"):
        assert is_loopback(url)
    for url in ("http://localhost.evil.com", "http://10.0.0.1", "http://127.0.0.1.nip.io", "http://0.0.0.0"):
        assert not is_loopback(url)


@pytest.mark.requirement("C21")
async def test_the_model_server_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "replies.jsonl"
    script.write_text('{"text": "one"}\n{"text": "two", "repeat": true}\n')
    command = [sys.executable, "-m", "holdfast.testing.model_server", "--script", str(script)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        pool = HttpPool()
        try:
            entry = PROVIDERS["openai"]
            provider = make_provider(entry, model="m", base_url=f"{address}/v1", api_key="", http=pool)
            facts, said = ModelFacts("openai", "m"), []
            response = Message("assistant", (Text("one"),))
            for messages in ([QUESTION], [QUESTION], [QUESTION, response, QUESTION], [response] * 3):
                body = written_request(provider.wire, facts, messages)
                reply = await provider.respond(
                    ModelAttempt(
                        facts,
                        body,
                        is_streaming=True,
                        idle_s=60,
                        outcomes=0,
                        on_delta=lambda delta: None,
                        on_cut=lambda cut: None,
                        check=never_over,
                    )
                )
                assert isinstance(reply, ModelReply), reply
                said.append(text_of(reply.parts))
        finally:
            await pool.aclose()
    finally:
        process.kill()
        await process.wait()
    assert said == ["one", "one", "two", "two"]


@pytest.mark.requirement("L7")
async def test_a_server_that_keeps_a_finished_stream_open_does_not_hold_the_answer_up() -> None:
    whole = b'{"choices":[{"index":0,"delta":{"content":"Paris"},"finish_reason":"stop"}]}'
    events = b"data: " + whole + b"\n\ndata: [DONE]\n\n"
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events)
        await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        pool = HttpPool()
        provider = make_provider(PROVIDERS["openai"], model="m", base_url=url, api_key="", http=pool)
        facts = ModelFacts("openai", "m")
        async with asyncio.timeout(60):
            reply = await provider.respond(
                ModelAttempt(
                    facts,
                    b"",
                    is_streaming=True,
                    idle_s=60,
                    outcomes=0,
                    on_delta=lambda delta: None,
                    on_cut=lambda cut: None,
                    check=never_over,
                )
            )
            await pool.aclose()
            await is_over.wait()
    assert isinstance(reply, ModelReply)
    assert text_of(reply.parts) == "Paris"
