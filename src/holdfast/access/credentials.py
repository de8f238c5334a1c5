"""Credentials of requests: the value of a stored secret, with the hosts that may get it.

Only `egress` reads the value, when it writes a request. `access` has the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import msgspec

from holdfast.config.settings import SecretUse
from holdfast.errors import UsageError
from holdfast.policy.urls import may_have_secret
from holdfast.protocol.traffic import StandIn
from holdfast.sandbox.whole import same

_MARK = "holdfast-placeholder-"
"""The beginning of each placeholder."""


class Credential(msgspec.Struct, frozen=True):
    """A header with a secret in it, and where it may be sent."""

    name: str
    header: str
    text: str
    """The whole text of the header."""
    secret: str
    hosts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"

    def goes_to(self, url: str) -> bool:
        """Return whether a request to a URL may have it."""
        return may_have_secret(self.hosts, url)


class Credentials(msgspec.Struct, frozen=True):
    """The secrets of settings, with their values.

    Args:
        uses: What the settings say about each secret.
        value_of: Returns the value of a secret, or raises `UsageError`.
    """

    uses: Mapping[str, SecretUse]
    value_of: Callable[[str], str]

    def of(self, name: str) -> Credential:
        """Return a credential by the name of its secret.

        Raises:
            UsageError: there is no such secret, or the settings name no host for it.
        """
        use = self.uses.get(name)
        if use is None or not use.hosts:
            known = ", ".join(sorted(each for each, said in self.uses.items() if said.hosts)) or "none"
            raise UsageError(f"The settings let no host have a secret {name}. Secrets with hosts: {known}.")
        value = self.value_of(name)
        return Credential(name, use.header, use.format.replace("{}", value), value, use.hosts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return all hosts that may know a secret."""
        return tuple(host for use in self.uses.values() for host in use.hosts)

    def stand_ins(self) -> tuple[tuple[str, StandIn], ...]:
        """Return, for each secret with a variable, hosts and a value, that variable and what stands for the secret in
        one command, under a new mark.
        """
        found = [(name, use, self._value(name)) for name, use in self.uses.items() if use.env and use.hosts]
        return tuple(
            (use.env, StandIn(name, _MARK + secrets.token_hex(16), value, use.header, use.hosts, use.format))
            for name, use, value in found
            if value
        )

    def _value(self, name: str) -> str:
        try:
            return self.value_of(name)
        except UsageError:
            return ""


def with_credential(headers: Mapping[str, str], credential: Credential | None, url: str) -> Mapping[str, str]:
    """Return the headers that go to a URL: with the credential if it may have it, and never with another value of
    the same header.
    """
    if credential is None:
        return headers
    named = same(credential.header)
    others = {name: value for name, value in headers.items() if same(name) != named}
    return {**others, credential.header: credential.text} if credential.goes_to(url) else others
