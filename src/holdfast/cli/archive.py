"""`holdfast export` and `import` carry a session to another home; `holdfast delete` removes it for good."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from holdfast.app import open_store, own_places
from holdfast.cli.options import HomeFlag, JsonFlag, SessionName, home_of
from holdfast.cli.reading import about_to_write, find_session, reading
from holdfast.cli.recall import HISTORY_FILE, Recall
from holdfast.cli.terminal import has_person, say, say_json, tell, write
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load
from holdfast.config.paths import Home
from holdfast.core.state import Done, open_run
from holdfast.errors import Conflict, HoldfastError, StorageError, UsageError
from holdfast.policy.protected import Own
from holdfast.protocol.counts import counted
from holdfast.protocol.events import MessageReceived, Record
from holdfast.protocol.limits import usd
from holdfast.protocol.rows import SessionRow
from holdfast.protocol.settings import Posture
from holdfast.runtime import archive
from holdfast.runtime.acceptance import before_sending
from holdfast.runtime.drafts import draft_beside
from holdfast.runtime.isolate import drop_copies
from holdfast.sandbox.work_folder import work_folder
from holdfast.tools.blocking import Refused
from holdfast.views.edits import workspaces_of
from holdfast.views.lines import COMMAND, Line, Span, neutral, one_line

FILE_BYTES = 4 << 30
"""The largest file that is imported."""
_PART_BYTES = 1 << 20
_TITLE_CELLS = 60
_CALL_CELLS = 200
_NOT_DELETED = 1
_WORKING_OFF = "holdfast.tools.working_off"
_LEFT = "aside"


def export(
    session: SessionName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - is stdout.")],
    home: HomeFlag = None,
) -> None:
    """Write a session to a file, with every record and output.

    \b
    holdfast export last session.jsonl
    holdfast export cli:docs - | gzip > docs.jsonl.gz

    The file is JSON Lines. Secrets in it are masked, as they are in the home. It does not contain the
    old content of edited files.
    """
    asyncio.run(_export(home_of(home), session, file))


async def _export(home: Home, name: str, file: str) -> None:
    async with reading(home) as store:
        lines = archive.export(store, await find_session(store, name))
        async with aclosing(lines):
            with nullcontext(sys.stdout.buffer) if file == "-" else _new_file(Path(file)) as out:
                async for line in lines:
                    out.write(line)
                out.flush()


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name when it is whole. Otherwise what is there stays.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file.", hint="Name another one, or - for stdout.")
        with draft_beside(path) as (draft, fd), open(fd, "wb", closefd=False) as out:
            yield out
            out.flush()
            os.fsync(fd)
            draft.rename(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `holdfast export` wrote; - is stdin.")
    ],
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> None:
    """Read a session from a file. Its hash chain must prove every record.

    \b
    holdfast import session.jsonl
    ssh other holdfast export last - | holdfast import -

    The session keeps its id and name. Importing it again changes nothing. An open run is paused. Approvals in the
    file do not count. Its autonomy is at most that of this home. `resume` uses the folder, the model and the
    limits that the records name: look at them first.
    """
    place = home_of(home)
    with _from_stdin(place) if str(file) == "-" else nullcontext(file) as path:
        adopted = asyncio.run(_import(place, path))
    if is_json:
        say_json({"session": adopted.session})
    else:
        say([adopted.session])
    for line in _resumed(adopted):
        tell(line)


async def _import(home: Home, path: Path) -> archive.Adopted:
    _check_file(path)
    config = load(home, None, {}, os.environ)
    approve_by = config.approve_by or ("prompt" if has_person() else "wait")
    with before_sending():
        file = archive.proven(path, SYSTEM_CLOCK.now_ms(), Posture(config.autonomy, approve_by))
        async with aclosing(
            open_store(home)
        ) as store:  # not before: a file that is refused leaves no new home
            return await archive.adopt(store, file)


@contextmanager
def _from_stdin(home: Home) -> Iterator[Path]:
    """Save what comes on stdin in a file for as long as it is needed: an import reads it twice.

    Raises:
        UsageError: nothing comes, or it cannot be saved.
    """
    if sys.stdin.isatty():
        raise UsageError("Nothing comes on stdin.", hint="Export into it: `holdfast export last -`.")
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(work_folder("holdfast-", [str(home.folder)]))
            file = stack.enter_context(Path(folder, "session.jsonl").open("wb"))
            while part := sys.stdin.buffer.read(_PART_BYTES):
                if file.tell() + len(part) > FILE_BYTES:
                    raise UsageError(f"stdin has more than {FILE_BYTES >> 30} GiB, which no session has.")
                file.write(part)
            file.flush()
        except OSError as error:
            raise UsageError(f"stdin cannot be saved: {error.strerror or error}.") from None
        try:
            yield Path(file.name)
        except HoldfastError as error:
            error.message = error.message.replace(file.name, "stdin")
            raise


def _resumed(adopted: archive.Adopted) -> Iterator[Line]:
    """Return what the session does when it is resumed, for the person to judge."""
    yield ["  look at it:  ", Span(f"holdfast show {adopted.session}", COMMAND)]
    state = adopted.state
    settings = state.settings if state is not None else None
    if state is None or settings is None:
        return
    facts, autonomy = settings.model.facts, settings.posture.autonomy
    said = f" (the file said {adopted.autonomy})" if adopted.autonomy != autonomy else ""
    place = settings.tools.copy_of
    where = f"a copy of {neutral(place)}" if place else neutral(settings.tools.workspace)
    yield [f"  resumed, it works in {where} with {neutral(facts.name)}"]
    yield [f"  autonomy {autonomy}{said}, at most ${usd(settings.limits.cost_microusd)} a run"]
    if open_run(state) is None:
        return
    yield ["  its run is open, and paused until you resume it"]
    for call in state.turn.calls:
        if not isinstance(call.stage, Done):
            yield [f"  open call: {neutral(call.name)} {one_line(call.arguments, _CALL_CELLS)}"]


def _check_file(path: Path) -> None:
    """Refuse a path that is not a file, and a file that is larger than any session.

    Raises:
        UsageError: says why.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{path} is not a regular file.", hint="Save it first, then import the file.")
    if facts.st_size > FILE_BYTES:
        raise UsageError(f"{path} is larger than {FILE_BYTES >> 30} GiB, which no session is.")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} cannot be read: its permissions forbid it.")


def delete(
    session: SessionName,
    is_sure: Annotated[bool, typer.Option("--yes", help="Delete it without asking.")] = False,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Delete a session for good: records, outputs, and the kept content of its files. There is no way back.

    \b
    holdfast delete 01J8
    holdfast delete cli:docs --yes

    What you typed for it in `chat` is also removed from the history of the prompt, and so is a copy of the workspace
    in which it worked. Nothing is deleted while a process
    drives the session, or if a branch shares its records.
    """
    return asyncio.run(_delete(home_of(home), session, is_sure=is_sure, is_json=is_json))


async def _delete(home: Home, name: str, *, is_sure: bool, is_json: bool) -> int:
    async with about_to_write(home) as store:
        session = await find_session(store, name)
        row = await store.session(session) or SessionRow(session)
        if not is_sure and not _is_confirmed(row):
            tell("Nothing was deleted.")
            return _NOT_DELETED
        recall = Recall(home.folder, str)
        folders: set[str] = set()

        def forget(records: Sequence[Record]) -> None:
            recall.forget(_messages(records))
            _forget_commands(home, session)
            folders.update(workspaces_of(records))

        try:
            await archive.delete(store, session, forget)
            await drop_copies(store, home.folder, session, folders)
        except OSError as error:
            raise StorageError(
                f"The history of the prompt cannot be written: {error.strerror or error}. Nothing was deleted.",
                hint=f"Remove {home.folder / HISTORY_FILE}, and delete the session again.",
            ) from None
    if is_json:
        say_json({"session": session})
    else:
        say([f"Deleted {session}."])
    if row.parent:
        tell(f"The records that it shared stay in the session that it branched off from: {row.parent}.")
        tell(["  delete that too:  ", Span(f"holdfast delete {row.parent}", COMMAND)])
    return 0


def _forget_commands(home: Home, session: str) -> None:
    """Undo what commands of the session left whose Holdfast was killed, and say so. Then nothing is kept of them.

    Raises:
        Conflict: something could not be undone.
    """
    if not any((home.folder / _LEFT).glob("*")):
        return
    working_off = import_module(_WORKING_OFF)
    try:
        for said in working_off.forgotten(Own(**own_places(home, os.environ)), home.folder, session):
            tell(said)
    except Refused as error:
        hint = "`holdfast doctor` says more. Put it right, or move it away, and delete the session again."
        raise Conflict(str(error), hint=hint) from None


def _messages(records: Sequence[Record]) -> Iterator[str]:
    return (record.event.text for record in records if isinstance(record.event, MessageReceived))


def _is_confirmed(row: SessionRow) -> bool:
    """Ask the person at the terminal.

    Raises:
        UsageError: nobody can be asked.
    """
    if not has_person():
        raise UsageError(
            "Nobody is here to confirm that the session is to be deleted.", hint="Confirm it with --yes."
        )
    about = f"{row.session}  {row.key}  {one_line(row.title, _TITLE_CELLS)}  ({counted(row.turns, 'turn')})"
    tell([Span("Delete for good: ", "bold"), neutral(" ".join(about.split()))])
    write("Delete it? y or n: ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
