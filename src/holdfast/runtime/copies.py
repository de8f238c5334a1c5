"""Where the copies of workspaces lie, and which of them are whole.

A copy lies in a private folder beside the home, `HOME.copies/ID/NAME`: no tool may touch the home itself, and a
sandbox shows a command nothing of the folders around its workspace. What was copied is written down in the home,
where no command can change it: `HOME/copies/ID.json`.

A copy is made as a draft, then written down, then renamed. So it is whole if the folder with its name has the mark
that was written down: an empty file beside the copy, with a name that nobody can guess. Numbers of the file system
would change with a remount or a backup. Half a copy never has the name. What is to be removed first loses its record.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast import depths
from holdfast.errors import UsageError
from holdfast.policy.paths import is_inside
from holdfast.policy.protected import BESIDE
from holdfast.runtime.drafts import draft_beside, sweep
from holdfast.storage.blobs import make_folder, sync_folder, write_file
from holdfast.storage.errors import storage_errors
from holdfast.storage.images import Images
from holdfast.tools.blocking import Refused
from holdfast.tools.copying import Copied, copy
from holdfast.tools.own import OwnPlaces

FOLDER = "copies"
_ID = re.compile(r"[0-9a-f]{16}")
_RECORD = ".json"
_GOING = ".dropped"
"""What the record is called while the copy is removed. A new name needs no space on a full disk."""


class Accepting(msgspec.Struct, frozen=True):
    """What is about to be accepted. It counts if the journal says that it was done: the record of the copy is written
    before that, and may not be written again after it.
    """

    session: str
    after_seq: int
    """The last record of the session before."""
    states: dict[str, tuple[str, int]]
    """What each file is then, by path."""
    is_all: bool
    """Nothing is left out, so nobody needs the copy then."""


class Copy(msgspec.Struct, frozen=True):
    """A copy of a workspace."""

    origin: str
    """The workspace of the user."""
    folder: str
    """The copy, in which the session works."""
    made_ms: int
    mark: str
    """The name of the empty file beside it."""
    copied: Copied
    accepting: Accepting | None = None


def beside(home: Path) -> Path:
    """Return the folder of a home's copies."""
    real = Path(os.path.realpath(home))
    return real.with_name(real.name + BESIDE)


def make(home: Path, origin: str, own: OwnPlaces, images: Images, now_ms: int) -> Copy:
    """Copy a workspace.

    Raises:
        UsageError: it cannot be copied. The message says why.
        StorageError: it cannot be written down.
    """
    root, name = beside(home), secrets.token_hex(8)
    if is_inside(origin, str(root)):
        raise UsageError(
            f"The workspace {origin} holds Holdfast's own files ({home}), so it cannot be copied.",
            hint="Name another workspace with -w DIR, or another home with --home DIR.",
        )
    with storage_errors(home):
        make_folder(home / FOLDER)
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        root.chmod(0o700)
        with draft_beside(root / name, is_folder=True) as (draft, _):
            to = draft / (os.path.basename(origin) or "workspace")  # noqa: PTH119
            to.mkdir()
            copied = copy(origin, to, own, images)
            to.chmod(stat.S_IMODE(os.stat(origin).st_mode) & 0o777 | 0o700)  # noqa: PTH116
            made = Copy(
                origin, str(root / name / to.name), now_ms, f".holdfast-{secrets.token_hex(16)}", copied
            )
            with (draft / made.mark).open("xb") as mark:
                os.fsync(mark.fileno())
            sync_folder(draft)
            with storage_errors(home):
                _write(home, name, made)
            draft.rename(root / name)
            sync_folder(root)
            return made
    except Refused as refusal:
        raise UsageError(f"{origin} cannot be copied. {refusal}") from None
    except OSError as error:
        what = f" ({error.filename})" if error.filename is not None else ""
        raise UsageError(f"{origin} cannot be copied: {error.strerror or error}{what}.") from None


def find(home: Path, folder: str) -> Copy | None:
    """Return the copy in which a session works, if it is there and whole."""
    around = Path(folder).parent
    if around.parent != beside(home) or not _ID.fullmatch(around.name):
        return None
    found = _read(home, around.name)
    return found if found is not None and found.folder == folder and _is_there(found) else None


def is_lost(home: Path, folder: str) -> bool:
    """Return whether a copy that is not to be found was neither accepted nor discarded: its disk is not mounted, its
    folder was moved, or its record is gone.
    """
    around = Path(folder).parent
    if not _ID.fullmatch(around.name) or find(home, folder) is not None:
        return False
    recorded = _read(home, around.name)
    if recorded is not None:
        return recorded.folder == folder
    is_going = os.path.lexists(_record(home, around.name, _GOING))
    places = (str(_record(home, around.name)), folder)
    return around.parent == beside(home) and any(map(os.path.lexists, places)) and not is_going


def is_waiting(home: Path, folder: str) -> bool:
    """Return whether a session works in a copy that is there, as its names tell, without its long record."""
    around = Path(folder).parent
    is_one = around.parent == beside(home) and _ID.fullmatch(around.name) is not None
    return is_one and os.path.lexists(folder) and os.path.lexists(_record(home, around.name))


def lost(home: Path) -> list[str]:
    """Return the ids of the copies that are not where they were made."""
    return [name for name in _recorded(home, _RECORD) if not os.path.lexists(beside(home) / name)]


def every(home: Path) -> Iterator[Copy]:
    """Yield all whole copies of a home."""
    for name in _recorded(home, _RECORD):
        found = _read(home, name)
        if found is not None and _is_there(found):
            yield found


def write(home: Path, found: Copy) -> None:
    """Write down what is known of a copy now."""
    with storage_errors(home):
        _write(home, Path(found.folder).parent.name, found)


def drop(home: Path, folder: str) -> None:
    """Remove a copy. If this is killed, it is no longer a whole one, and `clear` removes the rest."""
    name = Path(folder).parent.name
    with storage_errors(home), suppress(FileNotFoundError):
        _record(home, name).rename(_record(home, name, _GOING))
        sync_folder(home / FOLDER)
    _clear(home, name)


def clear(home: Path) -> None:
    """Remove what killed or failed commands left of copies."""
    for name in _recorded(home, _GOING):
        _clear(home, name)
    sweep(beside(home))


def _clear(home: Path, name: str) -> None:
    around = beside(home) / name
    # A name of a draft that nobody locks: `sweep` removes what is left of it.
    gone = around.with_name(f".holdfast-{secrets.token_hex(8)}.draft")
    with storage_errors(around):
        with suppress(FileNotFoundError, NotADirectoryError):
            around.rename(gone)
            depths.remove(str(gone))
        _record(home, name, _GOING).unlink(missing_ok=True)


def _recorded(home: Path, kind: str) -> list[str]:
    """Return the ids of the copies with such a record."""
    with suppress(FileNotFoundError), os.scandir(home / FOLDER) as entries:
        names = [entry.name.removesuffix(kind) for entry in entries if entry.name.endswith(kind)]
        return [name for name in names if _ID.fullmatch(name)]
    return []


def _record(home: Path, name: str, kind: str = _RECORD) -> Path:
    return home / FOLDER / f"{name}{kind}"


def _is_there(found: Copy) -> bool:
    with suppress(OSError):
        around = Path(found.folder).parent
        is_marked = stat.S_ISDIR(os.lstat(around).st_mode) and os.path.lexists(around / found.mark)
        return is_marked and stat.S_ISDIR(os.lstat(found.folder).st_mode)
    return False


def _write(home: Path, name: str, made: Copy) -> None:
    write_file(_record(home, name), msgspec.json.encode(_in_text(made, _to_text)))


def _read(home: Path, name: str) -> Copy | None:
    """Return what is written down about a copy; None if there is nothing that can be read."""
    try:
        found = msgspec.json.decode(_record(home, name).read_bytes(), type=Copy)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return None
    return _in_text(found, _from_text)


def _in_text(made: Copy, change: Callable[[str], str]) -> Copy:
    """Names are bytes, and JSON has none."""
    copied, accepting = made.copied, made.accepting
    if accepting is not None:
        accepting = replace(
            accepting, states={change(path): state for path, state in accepting.states.items()}
        )
    return replace(
        made,
        accepting=accepting,
        copied=Copied(
            {change(path): item for path, item in copied.items.items()},
            tuple(map(change, copied.ignored)),
            change(copied.exclude),
            tuple(map(change, copied.left_out)),
        ),
    )


def _to_text(name: str) -> str:
    return os.fsencode(name).decode("latin-1")


def _from_text(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
