"""Finds usable providers: those with a key, and local servers that answer.

Nothing leaves the machine: only loopback addresses are contacted.
"""

from __future__ import annotations

import http.client
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec

from holdfast.access.provider_keys import ProviderKeys
from holdfast.access.store import SecretStore
from holdfast.config.paths import Home
from holdfast.config.settings import Config
from holdfast.errors import UsageError
from holdfast.protocol.counts import counted
from holdfast.providers.http import is_loopback
from holdfast.providers.registry import PROVIDERS, Entry, address_of

_PROBE_S = 0.5
_ANSWER_MAX_BYTES = 1 << 20
_SHOWN_MODELS = 200


class Found(msgspec.Struct, frozen=True):
    """A provider, and whether it can be used."""

    provider: str
    address: str
    key_variable: str
    """The variable that is read first for its key."""
    has_key: bool
    is_local: bool
    is_usable: bool
    why: str
    """Why it can or cannot be used."""
    models: tuple[str, ...] = ()
    """The models that a local server lists."""


def find_providers(config: Config, home: Home, environ: Mapping[str, str]) -> list[Found]:
    """Return every network provider, in the order of the registry. Secrets are only looked up by name.

    Raises:
        StorageError: The secret store cannot be read.
    """
    content = SecretStore(home.folder, environ).content()
    stored = content.entries if content is not None else {}
    keys = ProviderKeys(config, environ)
    entries = [entry for entry in PROVIDERS.values() if entry.wire != "script"]
    with ThreadPoolExecutor(len(entries)) as threads:
        return list(threads.map(lambda entry: _found(entry, keys, stored), entries))


def is_local(entry: Entry, config: Config, environ: Mapping[str, str]) -> bool:
    """Return whether the provider is called at an address of this machine.

    Raises:
        UsageError: Its address is not valid.
    """
    return is_loopback(address_of(entry, ProviderKeys(config, environ).base_url(entry)))


def _found(entry: Entry, keys: ProviderKeys, stored: Collection[str]) -> Found:
    secret, variable = keys.secret(entry), keys.variable(entry)
    has_key = secret in stored if secret else bool(keys.variable_key(entry))
    try:
        address = address_of(entry, keys.base_url(entry))
    except UsageError as error:
        return Found(entry.name, "", variable, has_key, False, False, error.message)
    if not is_loopback(address):
        is_usable = has_key or not entry.needs_key
        name, what = (f"the secret {secret}", "stored") if secret else (variable, "set")
        why = f"{name} is {what}" if has_key else f"{name} is not {what}"
        return Found(entry.name, address, variable, has_key, False, is_usable, why)
    models = ask_models(address)
    if models is None:
        return Found(entry.name, address, variable, has_key, True, False, "no server answers")
    why = f"a server answers, {counted(len(models), 'model')}" if models else "a server answers"
    return Found(entry.name, address, variable, has_key, True, True, why, models)


def ask_models(address: str) -> tuple[str, ...] | None:
    """Return the models that a local server lists: None if no server is there, empty if it does not list them in
    time.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_PROBE_S)
    try:
        connection.connect()
    except OSError:
        return None
    try:
        connection.request("GET", f"{parts.path}/models", headers={"Accept": "application/json"})
        content = connection.getresponse().read(_ANSWER_MAX_BYTES)
    except (OSError, http.client.HTTPException):
        return ()
    finally:
        connection.close()
    return _model_names(content)


class _Model(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model]


def _model_names(content: bytes) -> tuple[str, ...]:
    try:
        listed = msgspec.json.decode(content, type=_Models)
    except msgspec.DecodeError:
        return ()
    return tuple(model.id for model in listed.data[:_SHOWN_MODELS])
