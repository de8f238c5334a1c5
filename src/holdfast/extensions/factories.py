"""What a configuration names, by kind: Holdfast's own, and what installed packages add by their entry points.

A package is loaded only when the configuration names it: being installed runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from holdfast.errors import UsageError
from holdfast.extensions.found import EntryPoint, entry_points

Kind = Literal["hooks", "providers", "stores", "tools"]
_ONE: Mapping[Kind, str] = {"hooks": "hook", "providers": "provider", "stores": "store", "tools": "tool"}
_OWN = "holdfast"
_LISTED = 20


class Factories:
    """The one registry of what is made by name.

    Args:
        own: Holdfast's own, as "module:name" by kind and name. No package takes the place of one.
        path: Where packages are looked for. The default is where Python looks for modules.
    """

    def __init__(self, own: Mapping[Kind, Mapping[str, str]], path: Sequence[str] | None = None) -> None:
        self._own = own
        self._path = path

    def has(self, kind: Kind, name: str) -> bool:
        """Return whether there is such a factory. Nothing is loaded."""
        return name in self._own.get(kind, {}) or name in self._found(kind)

    def names(self, kind: Kind) -> list[str]:
        """Return all names of a kind. Nothing is loaded."""
        return sorted({*self._own.get(kind, {}), *self._found(kind)})

    def find(self, kind: Kind, name: str, where: str = "") -> Any:
        """Return what is registered under a name.

        Args:
            kind: The kind.
            name: Its name.
            where: What names it, for the message of an error.

        Raises:
            UsageError: there is nothing of this name, or it cannot be loaded.
        """
        target = self._own.get(kind, {}).get(name)
        found = EntryPoint(name, target, _OWN) if target else self._found(kind).get(name)
        says = f"{where}: " if where else ""
        if found is None:
            raise UsageError(f"{says}there is no {_ONE[kind]} {name!r}.{self._near(kind, name)}")
        try:
            return found.load()
        except Exception as error:
            raise UsageError(
                f"{says}the {_ONE[kind]} {name} of the package {found.package} ({found.target}) cannot be loaded: "
                f"{type(error).__name__}: {error}.",
                hint=found.hint(error),
            ) from error

    def _found(self, kind: Kind) -> dict[str, EntryPoint]:
        return {each.name: each for each in entry_points(f"{_OWN}.{kind}", self._path)}

    def _near(self, kind: Kind, name: str) -> str:
        names = self.names(kind)
        near = get_close_matches(name, names, n=1)
        if near:
            return f" Did you mean {near[0]}?"
        return f" Installed packages offer: {', '.join(names[:_LISTED]) or 'nothing'}."
