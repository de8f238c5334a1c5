"""The tools that come with Holdfast, and the one function that puts a runtime's tools together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.policy.protected import Own
from holdfast.protocol.ports import Tool
from holdfast.sandbox.process import Processes
from holdfast.tools.ask import AskUser
from holdfast.tools.dispatcher import Dispatcher
from holdfast.tools.files import EditFile, ReadFile, WriteFile
from holdfast.tools.gates import gates_of
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.registry import Registry
from holdfast.tools.search import Glob, Grep, ListDir
from holdfast.tools.shell import Shell


def make_tools(extra_tools: Iterable[Tool] = (), *, secret_in: Callable[[str], str], own: Own) -> Dispatcher:
    """The built-in tools and then the extra ones, behind their gates. The receiver closes it.

    Args:
        extra_tools: Tools of the caller, in the order in which a model sees them.
        secret_in: The name of a known secret whose value a text holds; empty when it holds none.
        own: Where Holdfast keeps what is its own: no tool changes it.

    Raises:
        UsageError: two tools share a name, or a name is none that every provider takes.
    """
    processes, places = Processes(), own_places(own)
    registry = Registry([*built_in(processes, places), *extra_tools])
    return Dispatcher(registry, processes, gates_of(secret_in, places))


def built_in(processes: Processes, own: OwnPlaces) -> tuple[Tool, ...]:
    """The built-in tools in the order in which a model sees them."""
    return (
        ReadFile(own),
        WriteFile(own),
        EditFile(own),
        ListDir(own),
        Glob(own),
        Grep(processes, own),
        Shell(processes),
        AskUser(),
    )
