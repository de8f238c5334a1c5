"""The table of providers, and how to make one from an address and a key.

It reads no environment and no file: the caller has the values. Keys go into headers and nowhere else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import UsageError
from holdfast.protocol.ports import Provider
from holdfast.providers.anthropic import anthropic_provider
from holdfast.providers.http import USUAL_LINK, HttpPool, Link, is_loopback
from holdfast.providers.openai import Dialect, openai_provider
from holdfast.providers.responses import responses_provider
from holdfast.providers.script import script_from_file


class Entry(msgspec.Struct, frozen=True):
    """What is known about a provider by its name."""

    name: str
    wire: Literal["openai", "responses", "anthropic", "script", "package"] = "openai"
    """How it is spoken to. `package`: by a package that adds it."""
    base_url: str = ""
    """The address, with the API's version, as in `https://api.openai.com/v1`."""
    base_url_env: str = ""
    """The variable that usually has another address."""
    key_env: tuple[str, ...] = ()
    """The variables that usually have the key, in order."""
    needs_key: bool = True
    """Whether a request needs a key. On loopback it never does."""
    price_list: str = ""
    """The provider's name in the price data; empty if there are no prices."""
    dialect: Dialect = Dialect()


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset({"connection", "content-length", "content-type", "host", "transfer-encoding"})
_OPENAI_HOST = "api.openai.com"
_NEEDS_ITS_REASONING = Dialect(reasoning_field="reasoning_content")

_ENTRIES = (
    Entry(
        "openai",
        base_url=f"https://{_OPENAI_HOST}/v1",
        base_url_env="OPENAI_BASE_URL",
        key_env=("OPENAI_API_KEY",),
        price_list="openai",
    ),
    Entry(
        "openai-responses",
        wire="responses",
        base_url=f"https://{_OPENAI_HOST}/v1",
        base_url_env="OPENAI_BASE_URL",
        key_env=("OPENAI_API_KEY",),
        price_list="openai",
    ),
    Entry(
        "anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        base_url_env="ANTHROPIC_BASE_URL",
        key_env=("ANTHROPIC_API_KEY",),
        price_list="anthropic",
    ),
    Entry(
        "ollama",
        base_url="http://127.0.0.1:11434/v1",
        base_url_env="OLLAMA_HOST",
        key_env=("OLLAMA_API_KEY",),
        needs_key=False,
    ),
    Entry(
        "openrouter",
        base_url="https://openrouter.ai/api/v1",
        base_url_env="OPENROUTER_BASE_URL",
        key_env=("OPENROUTER_API_KEY",),
        price_list="openrouter",
        dialect=Dialect(reasoning_field="reasoning_details"),
    ),
    Entry(
        "groq",
        base_url="https://api.groq.com/openai/v1",
        base_url_env="GROQ_BASE_URL",
        key_env=("GROQ_API_KEY",),
        price_list="groq",
    ),
    Entry(
        "deepseek",
        base_url="https://api.deepseek.com",
        base_url_env="DEEPSEEK_BASE_URL",
        key_env=("DEEPSEEK_API_KEY",),
        price_list="deepseek",
        dialect=Dialect(reasoning_field="reasoning_content", takes_text_only=True),
    ),
    Entry(
        "moonshot",
        base_url="https://api.moonshot.ai/v1",
        base_url_env="MOONSHOT_BASE_URL",
        key_env=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        price_list="moonshotai",
        dialect=_NEEDS_ITS_REASONING,
    ),
    Entry(
        "mistral",
        base_url="https://api.mistral.ai/v1",
        base_url_env="MISTRAL_BASE_URL",
        key_env=("MISTRAL_API_KEY",),
        price_list="mistral",
        dialect=Dialect(has_stream_options=False, call_id_chars=9),
    ),
    Entry(
        "google",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        base_url_env="GOOGLE_OPENAI_BASE_URL",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        price_list="google",
        dialect=Dialect(reasoning_field="extra_content"),
    ),
    Entry(
        "together",
        base_url="https://api.together.xyz/v1",
        base_url_env="TOGETHER_BASE_URL",
        key_env=("TOGETHER_API_KEY",),
        price_list="together",
    ),
    Entry(
        "fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        base_url_env="FIREWORKS_BASE_URL",
        key_env=("FIREWORKS_API_KEY",),
        price_list="fireworks",
    ),
    Entry(
        "xai",
        base_url="https://api.x.ai/v1",
        base_url_env="XAI_BASE_URL",
        key_env=("XAI_API_KEY",),
        price_list="x-ai",
    ),
    Entry(
        "cerebras",
        base_url="https://api.cerebras.ai/v1",
        base_url_env="CEREBRAS_BASE_URL",
        key_env=("CEREBRAS_API_KEY",),
        price_list="cerebras",
    ),
    Entry(
        "zai",
        base_url="https://api.z.ai/api/paas/v4",
        base_url_env="ZAI_BASE_URL",
        key_env=("ZAI_API_KEY",),
        price_list="zai",
    ),
    Entry(
        "huggingface",
        base_url="https://router.huggingface.co/v1",
        base_url_env="HF_BASE_URL",
        key_env=("HF_TOKEN",),
    ),
    Entry(
        "vllm",
        base_url="http://127.0.0.1:8000/v1",
        base_url_env="VLLM_BASE_URL",
        key_env=("VLLM_API_KEY",),
        needs_key=False,
    ),
    Entry(
        "lmstudio",
        base_url="http://127.0.0.1:1234/v1",
        base_url_env="LMSTUDIO_BASE_URL",
        key_env=("LMSTUDIO_API_KEY",),
        needs_key=False,
    ),
    Entry(
        "llamacpp",
        base_url="http://127.0.0.1:8080/v1",
        base_url_env="LLAMACPP_BASE_URL",
        key_env=("LLAMACPP_API_KEY",),
        needs_key=False,
    ),
    Entry("script", wire="script", needs_key=False),
)

PROVIDERS: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry_of(name: str, others: Iterable[str] = ()) -> Entry:
    """Return the provider of that name.

    Args:
        name: Its name.
        others: Names of further providers, for the message.

    Raises:
        UsageError: the name is unknown. The message names the nearest one and all others.
    """
    if name in PROVIDERS:
        return PROVIDERS[name]
    names = [*PROVIDERS, *others]
    near = difflib.get_close_matches(name, names, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    hint = "Write the model as PROVIDER:MODEL, for example openai:gpt-5.5 or ollama:llama3."
    raise UsageError(
        f"There is no provider {name!r}.{guess} The providers are {', '.join(names)}.", hint=hint
    )


def address_of(entry: Entry, base_url: str = "") -> str:
    """Return the provider's address: the given one, with common short forms completed, otherwise the usual one.

    `OLLAMA_HOST` may be a bare host and port, or an address to listen on.

    Raises:
        UsageError: it is not an http or https address.
    """
    if not base_url or entry.wire == "script":
        return entry.base_url
    address = base_url.strip() if "://" in base_url else f"http://{base_url.strip()}"
    address = address.replace("://0.0.0.0", "://127.0.0.1", 1).rstrip("/")
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(f"{base_url!r} is not an http or https address for the provider {entry.name}.")
    if entry.name == "ollama":
        usual = urlsplit(entry.base_url)
        if ":" not in parts.netloc.rpartition("]")[2] and parts.scheme == "http":
            address = address.replace(parts.netloc, f"{parts.netloc}:{usual.port}", 1)
        if not parts.path:
            address += usual.path
    return address


def make_provider(
    entry: Entry,
    *,
    model: str,
    base_url: str,
    api_key: str,
    http: HttpPool,
    link: Link = USUAL_LINK,
) -> Provider:
    """Return the provider at that address with that key. The caller closes `http`, which is shared.

    Only `script` uses `model`: it is the path of the file. Each script has its own provider.

    Raises:
        UsageError: the address is wrong, a key is missing or malformed, or the script is wrong.
    """
    if entry.wire == "script":
        return script_from_file(model)
    address, key = address_of(entry, base_url), api_key.strip()
    if not key and entry.needs_key and not is_loopback(address):
        hint = f"Set {entry.key_env[0]}, or name another variable as api_key_env in [providers.{entry.name}]."
        raise UsageError(f"There is no API key for {entry.name}.", hint=hint)
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"The API key for {entry.name} contains characters that no key has.")
    if any(_HEADER.fullmatch(name) is None or name.lower() in _OWN_HEADERS for name in link.headers):
        where = f"[providers.{entry.name}.headers]"
        hint = f"Holdfast itself sets {', '.join(sorted(_OWN_HEADERS))}."
        raise UsageError(f"{where} has a name that no header may have.", hint=hint)
    if entry.wire == "anthropic":
        return anthropic_provider(entry.name, address, key, http, link)
    is_openai = urlsplit(address).hostname == _OPENAI_HOST
    has_cache_key = is_openai and link.cache != "off"
    if entry.wire == "responses":
        return responses_provider(entry.name, address, key, http, link, has_cache_key=has_cache_key)
    dialect = entry.dialect
    if is_openai:
        dialect = msgspec.structs.replace(
            dialect, cap_field="max_completion_tokens", longest_call_id=40, has_cache_key=has_cache_key
        )
    return openai_provider(entry.name, address, key, http, link, dialect)
