"""Where the address and the key of a provider come from: the settings, the environment, the stored secrets."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.access.stored import StoredSecrets
from holdfast.config.files import TEXT_MAX_BYTES, Unreadable, read_text
from holdfast.config.paths import expanded
from holdfast.config.settings import Config
from holdfast.errors import UsageError
from holdfast.policy.urls import Misread, may_have_secret
from holdfast.providers.http import USUAL_LINK, Link
from holdfast.providers.registry import Entry, address_of


class ProviderKeys(msgspec.Struct, frozen=True):
    """The addresses and keys of providers, by the settings and the environment of one process."""

    config: Config
    environ: Mapping[str, str]

    def base_url(self, entry: Entry) -> str:
        """The address that the configuration, or else the environment, gives a provider of the registry; empty:
        its usual one."""
        said = self.config.providers.get(entry.name)
        return (said.base_url if said else "") or self.environ.get(entry.base_url_env, "")

    def link(self, entry: Entry) -> Link:
        """Return how the provider is spoken to.

        Raises:
            UsageError: the file with certificates cannot be read, or has none.
        """
        said = self.config.providers.get(entry.name)
        if said is None:
            return USUAL_LINK
        ca_pem = _certificates(entry.name, said.ca_file) if said.ca_file else ""
        return Link(said.cache, said.cache_ttl == "1h", said.headers, said.proxy, ca_pem)

    def variables(self, entry: Entry) -> tuple[str, ...]:
        """The variables in which a provider's key is looked for."""
        said = self.config.providers.get(entry.name)
        return said.api_key_env if said and said.api_key_env else entry.key_env

    def secret(self, entry: Entry) -> str:
        """The name of the stored secret that is the provider's key; empty: a variable has the key."""
        said = self.config.providers.get(entry.name)
        return said.api_key_secret if said else ""

    def variable(self, entry: Entry) -> str:
        """Return the first variable that has a key, else the first one; empty if none is known."""
        names = self.variables(entry)
        return next((name for name in names if self.environ.get(name, "").strip()), next(iter(names), ""))

    def variable_key(self, entry: Entry) -> str:
        """Return the key in the variable that the configuration names, else in the usual ones; empty if none has
        one."""
        return next(iter(self._variable_keys(self.variables(entry))), "")

    def _variable_keys(self, names: Sequence[str]) -> list[str]:
        return [key for name in names if (key := self.environ.get(name, "").strip())]

    def api_keys(self, entry: Entry, stored: StoredSecrets) -> tuple[str, ...]:
        """Return the keys of a provider in the order in which they are used: the stored one, and those of the
        variables that the configuration names. Of the usual variables only the first one counts that has a key. An
        empty one if it has none.

        Raises:
            UsageError: the configuration names a secret that is not stored, or that may not be sent there.
        """
        said, name = self.config.providers.get(entry.name), self.secret(entry)
        named = self._variable_keys(said.api_key_env) if said is not None else []
        if not name:
            return tuple(dict.fromkeys(named)) or (self.variable_key(entry),)
        address, use = address_of(entry, self.base_url(entry)), self.config.secrets.get(name)
        if use is not None and use.hosts and not _may_go(use.hosts, address):
            raise UsageError(
                f"The secret {name} may not be sent to {entry.name}, at {address}.",
                hint=f"Name that host in [secrets.{name}] hosts, or leave the hosts out.",
            )
        return tuple(dict.fromkeys([stored.value(name), *named]))


def _may_go(hosts: Sequence[str], address: str) -> bool:
    try:
        return may_have_secret(hosts, address)
    except Misread:
        return False


def _certificates(provider: str, file: str) -> str:
    named, hint = f"providers.{provider}.ca_file = {file!r}", "Name a file with certificates as PEM."
    try:
        ca_pem = read_text(expanded(file), TEXT_MAX_BYTES)
        ssl.create_default_context(cadata=ca_pem)
    except Unreadable as error:
        raise UsageError(f"{named}: The file {error}.", hint=hint) from None
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{named}: The file has no certificates.", hint=hint) from None
    return ca_pem
