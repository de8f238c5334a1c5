"""The providers that a process speaks to: each is made once for each of its keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from holdfast.access.provider_keys import ProviderKeys
from holdfast.access.stored import StoredSecrets
from holdfast.config.settings import Config
from holdfast.protocol.ports import Provider
from holdfast.providers.http import HttpPool
from holdfast.providers.registry import Entry, address_of, make_provider

SCRIPT, PACKAGE = "script", "package"
_MARK_CHARS = 6


class ProviderPool:
    """Makes providers from the settings and the environment of one process, and keeps them."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        stored: StoredSecrets,
        http: HttpPool,
        entry_of: Callable[[str], Entry],
        make_packaged: Callable[[str], Callable[..., Provider]],
    ) -> None:
        """Keep what providers are made from.

        Args:
            entry_of: Returns what is known about a provider by its name, or raises `UsageError`.
            make_packaged: Returns what makes a provider that a package adds, by its name.
        """
        self._keys = ProviderKeys(config, environ)
        self._stored = stored
        self._http = http
        self._entry_of = entry_of
        self._make_packaged = make_packaged
        self._marks: dict[str, tuple[str, ...]] = {}
        """By provider, what distinguishes its keys."""
        self.made: dict[tuple[str, int], Provider] = {}
        """By provider, or script, and the place of the key."""

    async def resolve(self, name: str, which: int = 0) -> Provider:
        """Return the provider of PROVIDER:MODEL, or by its own name, with the key at this place.

        Raises:
            UsageError: there is no such provider, its key is missing, or its address or script is wrong.
        """
        provider, _, model = name.partition(":")
        key = name if provider == SCRIPT else provider
        made = self.made.get((key, which))
        if made is None:
            made = self.made[key, which] = self._make(provider, model, which)
        return made

    def _make(self, provider: str, model: str, which: int) -> Provider:
        entry = self._entry_of(provider)
        # For a missing key, name the variable that the configuration names.
        entry = replace(entry, key_env=self._keys.variables(entry))
        address, api_keys = self._keys.base_url(entry), self._keys.api_keys(entry, self._stored)
        if entry.wire != SCRIPT:
            self._marks[provider] = tuple([_mark(entry, address, each) for each in api_keys])
        if entry.wire == PACKAGE:
            return self._make_packaged(provider)(base_url=address, api_key=api_keys[which])
        given: dict[str, Any] = {"base_url": address, "api_key": api_keys[which]}
        return make_provider(entry, model=model, http=self._http, link=self._keys.link(entry), **given)

    def circuits(self, name: str) -> tuple[str, ...]:
        """Return the circuits of PROVIDER:MODEL, one for each key: `openai:gpt-5.5#3f9a1c`. A script has none, and
        neither has a provider that was not resolved."""
        return tuple([f"{name}#{mark}" for mark in self._marks.get(name.partition(":")[0], ())])


def _mark(entry: Entry, address: str, api_key: str) -> str:
    """Return what distinguishes a key at an address. It tells nobody the key."""
    place = f"{address_of(entry, address)}\n{api_key}"
    return hashlib.sha256(place.encode()).hexdigest()[:_MARK_CHARS]
