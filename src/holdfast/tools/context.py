"""The context of a tool function: what it is given beside its arguments, by a parameter annotated `Context[Deps]`.

The model never sees it, and nobody stores it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Generic, NewType, TypeVar, Union, get_args, get_origin, is_typeddict

from holdfast.errors import Fenced
from holdfast.protocol.ports import CallContext

DepsT = TypeVar("DepsT")
T = TypeVar("T")


class Context(Generic[DepsT]):
    """What a tool function may use beside its arguments. `Context[None]` is for functions that need no deps."""

    __slots__ = ("_call", "_is_cancelled")

    def __init__(self, call: CallContext, is_cancelled: Callable[[], bool] = bool) -> None:
        self._call = call
        self._is_cancelled = is_cancelled

    def __repr__(self) -> str:
        return f"Context({self.key!r})"

    @property
    def deps(self) -> DepsT:
        """What the caller of `run(..., deps=...)` gave to the run."""
        deps: DepsT = self._call.deps
        return deps

    def get(self, kind: type[T]) -> T:
        """Return the capability of a type: the deps of the run, or what the runtime offers to all tools.

        Raises:
            LookupError: nothing has this type.
        """
        return self._call.get(kind)

    @property
    def session(self) -> str:
        """The id of the session."""
        return self._call.session

    @property
    def call_id(self) -> str:
        """The number of the call in its session, like `t3.c1`."""
        return self._call.call_id

    @property
    def key(self) -> str:
        """The same for every attempt of the call: an idempotency key for other systems."""
        return self._call.key

    @property
    def workspace(self) -> Path:
        """The folder in which relative paths start."""
        return Path(self._call.workspace)

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed: the run was stopped, the call's time is over, or another
        process has the session now. A function that works long in a thread should check it before each effect,
        because nothing can stop a thread.
        """
        if self._is_cancelled():
            return True
        try:
            self._call.check()
        except Fenced:
            return True
        return False

    def progress(self, text: str) -> None:
        """Show text to all viewers of the run. It also restarts the limit of silence. The text is not stored."""
        with suppress(RuntimeError):  # the call is over, and its loop may be closed
            self._call.on_output(text)


def is_context(hint: Any) -> bool:
    """Return whether an annotation asks for the context."""
    return hint is Context or get_origin(hint) is Context


def deps_of(hint: Any) -> Any:
    """Return what `Context[...]` names; `Any` for `Context` alone, and for `Context[None]`, which uses no deps."""
    named = next(iter(get_args(hint)), None)
    return Any if named is None or named is types.NoneType else named


def fits(deps: object, wanted: Any) -> bool:
    """Return whether deps are what an annotation names. What cannot be checked here fits."""
    while get_origin(wanted) is Annotated or isinstance(wanted, NewType):
        wanted = wanted.__supertype__ if isinstance(wanted, NewType) else wanted.__origin__
    if get_origin(wanted) in (Union, types.UnionType):
        return any(fits(deps, each) for each in get_args(wanted))
    if wanted is Any or wanted is object or isinstance(wanted, TypeVar):
        return True
    if wanted is None or wanted is types.NoneType:
        return deps is None
    if is_typeddict(wanted):
        return isinstance(deps, dict)
    class_ = get_origin(wanted) or wanted
    if not isinstance(class_, type):
        return deps is not None
    if getattr(class_, "_is_protocol", False) and not getattr(class_, "_is_runtime_protocol", False):
        return deps is not None
    return isinstance(deps, class_)


def shown(wanted: Any) -> str:
    """Return the name of what an annotation names, as it is written."""
    return wanted.__name__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)
