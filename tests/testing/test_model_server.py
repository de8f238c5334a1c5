"""The pretended server of models answers every request, however soon it comes."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer, Received

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"


async def test_a_request_that_comes_in_the_last_pause_of_the_answer_before_it_is_answered() -> None:
    slowly = Reply(text="first", chunk_bytes=400, pause_s=0.2)
    async with ModelServer([slowly, Reply(text="second")], is_strict=False) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        async with asyncio.timeout(30):
            for text in (b"first", b"second"):
                writer.write(REQUEST)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].split()[0])
                assert text in await reader.readexactly(length)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_strict_server_refuses_what_its_service_would_refuse(is_strict: bool) -> None:
    async with ModelServer([Reply(text="hi")], is_strict=is_strict) as server:
        body = b'{"model":"m","messages":[],"max_tokens":1}'
        reply, rendered = server.answer(Received("/v1/chat/completions", {}, body))
    assert (reply.status, b"messages: the list is empty" in rendered.body) == (
        (400, True) if is_strict else (200, False)
    )
