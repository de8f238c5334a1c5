"""What a `ports.Wire` may do beside encoding a conversation. A package's wire needs none of it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.protocol.ports import Wire


@runtime_checkable
class PointedWire(Protocol):
    """A `Wire` that says in the messages up to where a provider is to keep them in its cache."""

    def cache_point(self, element: bytes) -> tuple[int, str] | None:
        """Return what is inserted into an element, and how many of its bytes come after that; None for nothing."""
        ...


@runtime_checkable
class KeyedWire(Protocol):
    """A `Wire` that names the session to a provider, which keeps what has one name in one cache."""

    def keyed(self, session: str) -> Wire:
        """Return the wire for a session."""
        ...
