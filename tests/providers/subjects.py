"""Providers with a real other side, for the tests of this room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.ports import Provider
from holdfast.providers.http import HttpPool
from holdfast.providers.registry import PROVIDERS, make_provider
from holdfast.providers.script import script_from_lines
from holdfast.testing.conformance_provider import Subject
from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer


class Served:
    """A provider that talks to a `ModelServer`."""

    def __init__(self, name: str, server: ModelServer, http: HttpPool, api_key: str = "sk-test-key") -> None:
        base_url = server.url if name == "anthropic" else server.openai_url
        self.server = server
        self.facts = ModelFacts(name, "test-model")
        self.provider: Provider = make_provider(
            PROVIDERS[name], model="test-model", base_url=base_url, api_key=api_key, http=http
        )

    async def until_asked(self) -> None:
        await self.server.until(lambda server: len(server.requests) > 0)

    async def until_left(self) -> None:
        await self.server.until(lambda server: server.abandoned > 0)


class Scripted:
    """A scripted provider: nobody is on the other side."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.facts = ModelFacts("script", "test.jsonl")
        self.provider: Provider = script_from_lines([_line(reply) for reply in replies])

    async def until_asked(self) -> None:
        """A task that was just made begins with the next turn of the loop."""
        await asyncio.sleep(0)

    async def until_left(self) -> None:
        """There is no connection to close."""


@asynccontextmanager
async def served(name: str, replies: Sequence[Reply]) -> AsyncIterator[Served]:
    """A provider of the registry on a server with these replies."""
    http = HttpPool()
    async with ModelServer(replies) as server:
        try:
            yield Served(name, server, http)
        finally:
            await http.aclose()


@asynccontextmanager
async def scripted(replies: Sequence[Reply]) -> AsyncIterator[Scripted]:
    """The scripted provider with the same replies."""
    yield Scripted(replies)


def prepared(name: str, replies: Sequence[Reply]) -> AbstractAsyncContextManager[Subject]:
    """Any provider by its name."""
    return scripted(replies) if name == "script" else served(name, replies)


def _line(reply: Reply) -> dict[str, Any]:
    line: dict[str, Any] = {"text": reply.text, "delay_s": reply.delay_s, "chunks": reply.pieces}
    line["tool_calls"] = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    if reply.usage:
        line["usage"] = msgspec.to_builtins(reply.usage)
    if reply.status != 200:
        wait = reply.headers.get("retry-after")
        line["error"] = {"status": reply.status, "retry_after": float(wait) if wait else None}
    return line
