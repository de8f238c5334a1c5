"""A cache with a bound and a time to live. Whatever is used sweeps out what is too old."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """The values of the keys that were used last.

    Args:
        most: The most values.
        ttl_ms: How long a value counts.
        now_ms: Returns the time on a clock that never jumps.
    """

    def __init__(self, most: int, ttl_ms: int, now_ms: Callable[[], int]) -> None:
        self._most = most
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._kept: OrderedDict[K, tuple[int, V]] = OrderedDict()
        """The values with the time at which each was put, least recently used first."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None for an unknown key and for a value that is too old."""
        self._sweep()
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[1]

    def put(self, key: K, value: V) -> None:
        """Keep a value. The one that was used the longest ago makes room."""
        self._sweep()
        self._kept[key] = (self._now_ms(), value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def _sweep(self) -> None:
        limit_ms = self._now_ms() - self._ttl_ms
        for key in [key for key, (put_ms, _) in self._kept.items() if put_ms <= limit_ms]:
            del self._kept[key]
