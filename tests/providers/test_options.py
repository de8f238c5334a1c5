"""What a model takes of what the user sets, and how it is written; and how its server is reached."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.protocol.limits import NO_OPTIONS, ModelFacts, ModelOptions, Tier
from holdfast.protocol.messages import ModelReply
from holdfast.protocol.outcomes import ModelFailure
from holdfast.protocol.ports import ModelAttempt
from holdfast.providers.catalog import Override, facts
from holdfast.providers.http import HttpPool, Link
from holdfast.providers.registry import PROVIDERS, make_provider
from holdfast.testing.clock import never_over
from holdfast.testing.conformance_provider import QUESTION, written_request
from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer

WISHED = ModelOptions("high", 0.25)
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("openai:gpt-5.5", ModelOptions("high")),
        ("openai-responses:o4-mini", ModelOptions("high")),
        ("openai:gpt-4.1-mini", ModelOptions(temperature=0.25)),
        ("anthropic:claude-opus-4-6", WISHED),
        ("anthropic:claude-3-5-haiku-latest", ModelOptions(temperature=0.25)),
        ("mistral:mistral-large-latest", ModelOptions(temperature=0.25)),
        ("ollama:qwen3", WISHED),
    ],
)
def test_a_model_gets_the_options_that_it_takes(model: str, taken: ModelOptions) -> None:
    assert facts(model, now_ms=NOW_MS, wished=WISHED).options == taken
    assert facts(model, now_ms=NOW_MS).options == NO_OPTIONS


@pytest.mark.parametrize(
    ("model", "reads"),
    [
        ("openai:gpt-5.5", True),
        ("openai-responses:gpt-4o-mini", True),
        ("openai:gpt-4o-audio-preview", False),
        ("openai:gpt-3.5-turbo", False),
        ("anthropic:claude-sonnet-5", True),
        ("ollama:qwen3", False),
    ],
)
def test_a_model_reads_images_where_that_is_known_or_the_catalog_says_so(model: str, reads: bool) -> None:
    assert facts(model, now_ms=NOW_MS).reads_images is reads
    said = {model: Override(images=not reads)}
    assert facts(model, now_ms=NOW_MS, overrides=said).reads_images is not reads


def test_a_temperature_above_what_the_service_takes_is_left_out() -> None:
    wished = ModelOptions(temperature=1.5)
    assert facts("anthropic:claude-opus-4-6", now_ms=NOW_MS, wished=wished).options == NO_OPTIONS
    assert facts("openai:gpt-4.1", now_ms=NOW_MS, wished=wished).options == wished


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("openai", {"reasoning_effort": "high"}),
        ("openai-responses", {"reasoning": {"effort": "high"}}),
        ("anthropic", {"output_config": {"effort": "high"}}),
    ],
)
def test_options_are_written_as_the_service_names_them(name: str, written: dict[str, Any]) -> None:
    wire = make_provider(PROVIDERS[name], model="m", base_url="", api_key="k", http=HttpPool()).wire
    body = json.loads(written_request(wire, ModelFacts(name, "m", options=WISHED), [QUESTION]))
    plain = json.loads(written_request(wire, ModelFacts(name, "m"), [QUESTION]))
    assert body == {**plain, **written, "temperature": 0.25}


def test_what_stays_in_the_cache_for_an_hour_is_reserved_at_the_price_of_that() -> None:
    usual = facts("anthropic:claude-sonnet-4-5", now_ms=NOW_MS)
    dearer = facts("anthropic:claude-sonnet-4-5", now_ms=NOW_MS, keeps_an_hour=True)
    assert dearer.cache_write_microusd_per_mtok == usual.cache_write_1h_microusd_per_mtok
    assert dearer.cache_write_microusd_per_mtok > usual.cache_write_microusd_per_mtok
    for tier in dearer.tiers:
        assert isinstance(tier, Tier)
        assert tier.cache_write_microusd_per_mtok >= tier.cache_write_1h_microusd_per_mtok


async def asked(base_url: str, link: Link, http: HttpPool) -> ModelReply | ModelFailure:
    entry = PROVIDERS["openai"]
    provider = make_provider(entry, model="m", base_url=base_url, api_key="sk-test", http=http, link=link)
    known = ModelFacts("openai", "m")
    body = written_request(provider.wire, known, [QUESTION])
    return await provider.respond(
        ModelAttempt(
            known,
            body,
            is_streaming=True,
            idle_s=30,
            outcomes=0,
            on_delta=lambda delta: None,
            on_cut=lambda cut: None,
            check=never_over,
        )
    )


async def test_headers_of_the_user_come_with_each_request_and_before_our_own() -> None:
    http = HttpPool()
    async with ModelServer([Reply(text="hi"), Reply(text="hi")]) as server:
        await asked(server.openai_url, Link(headers={"X-Team": "a", "authorization": "Basic x"}), http)
        await http.aclose()
        (received,) = server.requests
    assert (received.headers["x-team"], received.headers["authorization"]) == ("a", "Basic x")


@pytest.mark.parametrize("name", ["Content-Length", "host", "X Team", "X:Y", "X-Ü"])
def test_a_name_that_no_header_may_have_is_told(name: str) -> None:
    link = Link(headers={name: "1"})
    with pytest.raises(UsageError, match="headers"):
        make_provider(PROVIDERS["openai"], model="m", base_url="", api_key="k", http=HttpPool(), link=link)


async def test_a_proxy_of_the_configuration_gets_the_request_also_for_this_machine() -> None:
    http = HttpPool()
    async with ModelServer([Reply(text="hi")]) as proxy:
        result = await asked("http://models.example/v1", Link(proxy=proxy.url), http)
        await http.aclose()
        (received,) = proxy.requests
    assert isinstance(result, ModelReply), result
    assert received.path == "http://models.example/v1/chat/completions"


async def test_a_server_is_trusted_by_the_certificates_that_the_user_names(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    pem = tmp_path / "own.pem"
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    command = [openssl, "req", *made, *names, "-keyout", str(pem), "-out", str(tmp_path / "own.crt")]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "own.crt", pem)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    async with server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        codes = []
        for ca_pem in ("", (tmp_path / "own.crt").read_text()):
            http = HttpPool()
            result = await asked(url, Link(ca_pem=ca_pem), http)
            await http.aclose()
            assert isinstance(result, ModelFailure)
            codes.append(result.failure.code)
    assert codes == ["provider_fatal", "provider_transient"]
