"""The built-in tools, and the function that assembles all tools of a runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from holdfast.policy.protected import Own
from holdfast.protocol.fence import Sandbox
from holdfast.protocol.ports import Hooks, Journals, Tool
from holdfast.sandbox.process import Processes
from holdfast.storage.images import Images
from holdfast.tools.answer import answer
from holdfast.tools.apply_patch import ApplyPatch
from holdfast.tools.ask import AskUser
from holdfast.tools.background import Background
from holdfast.tools.dispatcher import Dispatcher
from holdfast.tools.fencing import Fences
from holdfast.tools.files import EditFile, ReadFile, WriteFile
from holdfast.tools.gates import gates_of
from holdfast.tools.git import GitDiff, GitLog, GitStatus
from holdfast.tools.hooked import with_hooks
from holdfast.tools.http_request import HttpRequest
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.page import Pages
from holdfast.tools.plan import UpdatePlan
from holdfast.tools.process import ProcessOutput, ProcessStop
from holdfast.tools.read_output import ReadOutput
from holdfast.tools.recall import RecallHistory
from holdfast.tools.registry import Registry
from holdfast.tools.search import Glob, Grep, ListDir
from holdfast.tools.secret_files import SecretFiles
from holdfast.tools.shell import Shell
from holdfast.tools.survey import Surveyor
from holdfast.tools.traces import Traces
from holdfast.tools.web import Web
from holdfast.tools.web_fetch import WebFetch
from holdfast.tools.web_search import WebSearch
from holdfast.tools.writing import digest_of


class Rooms(msgspec.Struct, frozen=True):
    """What tools use of other rooms."""

    images: Images | None = None
    """Where file tools keep what they replace; None: nowhere, so that it cannot be undone."""
    journals: Journals | None = None
    """Where sessions read what is stored of them; None: nowhere."""
    sandbox: Sandbox | None = None
    """Keeps commands inside their fences; None: a command that has one does not run."""
    traces: Traces | None = None
    """What commands left, until somebody hears of it."""


def make_tools(
    extra_tools: Iterable[Tool] = (),
    *,
    secret_in: Callable[[str], str],
    own: Own,
    rooms: Rooms = Rooms(),  # noqa: B008 - it is frozen
    web: Web | None = None,
    hooks: Hooks | None = None,
    secret_files: SecretFiles | None = None,
) -> Dispatcher:
    """Return the built-in tools and the extra ones, behind their gates. The caller closes them.

    Args:
        extra_tools: Tools of the caller, in the order in which the model sees them.
        secret_in: Returns the name of a known secret whose value is in a text; empty if no value is.
        own: Holdfast's own files, which no tool may change.
        rooms: What tools use of other rooms.
        web: How the web tools reach the network; None: as this machine does.
        hooks: Asks the hooks of settings; None: a call that a hook must see is refused.
        secret_files: Knows the values in the secret files of workspaces; None: nothing of them is known.

    Raises:
        UsageError: a name is taken, or not every provider accepts it.
    """
    background, places = Background(Processes(rooms.sandbox)), own_places(own)
    backend = rooms.sandbox.backend if rooms.sandbox is not None else "unsafe"
    credentials = web.credentials if web is not None else None
    fences = Fences(places, str(Path.home()), backend, credentials, rooms.traces)
    registry = Registry([*built_in(background, places, rooms, web, fences), *extra_tools])
    gates = with_hooks(gates_of(secret_in, places, secret_files, digest_of(rooms.images)), hooks)
    capabilities = [rooms.journals] if rooms.journals else []
    return Dispatcher(registry, background, gates, Surveyor(places), fences, capabilities)


def built_in(
    background: Background,
    own: OwnPlaces,
    rooms: Rooms = Rooms(),  # noqa: B008 - it is frozen
    web: Web | None = None,
    fences: Fences | None = None,
) -> tuple[Tool, ...]:
    """The built-in tools in the order in which the model sees them."""
    processes, images, journals = background.processes, rooms.images, rooms.journals
    web, pages = web or Web(), Pages(processes)
    return (
        ReadFile(own),
        WriteFile(own, images),
        EditFile(own, images),
        ApplyPatch(own, images),
        ListDir(own),
        Glob(own),
        Grep(processes, own),
        Shell(background, fences or Fences(own, str(Path.home()))),
        ProcessOutput(background),
        ProcessStop(background),
        AskUser(),
        UpdatePlan(),
        answer(),
        ReadOutput(processes, journals),
        RecallHistory(journals),
        WebFetch(web, pages),
        HttpRequest(web),
        WebSearch(web, pages),
        GitStatus(processes, own),
        GitDiff(processes, own),
        GitLog(processes, own),
    )
