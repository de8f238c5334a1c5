"""What a person gives beside the words of a message: stdin, `--attach FILE`, and `@path` in a typed chat message.

A file is read once, with a bound, and only if no rule keeps it secret. Nothing is stored before the whole message is
known to fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast.app import App, own_places
from holdfast.cli.terminal import tell
from holdfast.config.files import Unreadable, read_opened, read_stream
from holdfast.config.paths import expanded
from holdfast.context.clip import clean
from holdfast.errors import UsageError
from holdfast.policy.paths import is_inside, is_kernel_path, secret_rule
from holdfast.policy.protected import Own
from holdfast.protocol.commands import Send
from holdfast.protocol.media import MEDIA_BYTES, is_whole, media_type, weight_of
from holdfast.protocol.messages import Attachment, Origin
from holdfast.protocol.settings import Settings
from holdfast.protocol.trust import Trust
from holdfast.tools.own import own_places as places_of
from holdfast.views.lines import Span

TEXT_BYTES = 1_000_000
MAX_FILES = 20
STDIN_WAIT_S = 3.0
"""How long a pipe may deliver nothing. Then it is nobody's input: a shell or a service left it open."""
_HINT = "Attach a regular file with UTF-8 text, a PDF, or a PNG, JPEG, GIF or WebP image."
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
_AFTER_A_NAME = ".,;:!?)]}'\""


class Given(NamedTuple):
    """An attachment with its content, which is not stored yet."""

    attachment: Attachment
    content: bytes


# --- files ----------------------------------------------------------------------------------------


def given(app: App, names: Sequence[str], stdin: bytes) -> list[Given]:
    """Return what came on stdin, and read the files that `--attach` names.

    Raises:
        UsageError: there are too many, or one cannot be attached. Says which and why. The file behind stdin is one of
            them, even if it is the task.
    """
    with _unsent():
        if path := _redirected():
            _check_place(app, f"stdin ({path})", os.path.realpath(Path.cwd()), [path])
        files = [name for name in names if name != "-"]
        if len(files) > MAX_FILES:
            hint = f"Attach at most {MAX_FILES}."
            raise UsageError(f"--attach: {len(files)} files are too many.", hint=hint)
        piped = [_given(app, "stdin", "", stdin)] if stdin else []
        return piped + [_file(app, name, Path.cwd()) for name in files]


@contextmanager
def _unsent() -> Iterator[None]:
    """Say with an error that nothing was sent."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error.message} Nothing was sent.", hint=error.hint) from None


def _file(app: App, name: str, folder: Path, within: str = "/") -> Given:
    """Read a file. A relative name begins at the folder. Raises what `given` raises."""
    path = folder / expanded(name)
    try:
        with read_opened(path) as file:
            real = os.path.realpath(f"/proc/self/fd/{file.fileno()}")
            _check_place(app, name, os.path.realpath(folder), (str(path.absolute()), real))
            if not is_inside(within, real):
                raise Unreadable("lies outside the workspace")
            content = read_stream(file, MEDIA_BYTES)
        is_strange = app.config.policy.is_workspace_untrusted and is_inside(os.path.realpath(folder), real)
        return _given(app, "file", name, content, "untrusted" if is_strange else "data")
    except Unreadable as error:
        raise UsageError(f"{name} {error}.", hint=_HINT) from None


def _check_place(app: App, name: str, folder: str, paths: Iterable[str]) -> None:
    """Refuse what no tool may read either: secrets, Holdfast's own files, and what the kernel shows as files."""
    own = places_of(Own(**own_places(app.home, app.environ)))
    for path in paths:
        if rule := secret_rule(path):
            raise UsageError(
                f"{name} was not attached: {rule} is secret.", hint="Attach a file without secrets."
            )
        if own.by_path(path):
            raise UsageError(
                f"{name} was not attached: it is a file of Holdfast.", hint="Attach another file."
            )
        if is_kernel_path(path, folder):
            raise UsageError(
                f"{name} was not attached: it is not a regular file.", hint="Attach another file."
            )


def _given(app: App, origin: Origin, name: str, content: bytes, trust: Trust = "data") -> Given:
    """Return the content as an attachment. A text is redacted here, before anything is stored.

    Raises:
        UsageError: it is of another type, or too large.
    """
    kind, size = media_type(content), len(content)
    if kind is None or (kind == "text/plain" and size > TEXT_BYTES):
        why = "is neither UTF-8 text nor a PDF, PNG, JPEG, GIF or WebP"
        told = why if kind is None else f"is larger than {TEXT_BYTES:,} bytes of text"
        raise UsageError(f"{name or origin} {told}.", hint=_HINT)
    if not is_whole(kind, content):
        told = f"is not whole: it begins as {kind}, and its header or its end is missing"
        raise UsageError(f"{name or origin} {told}.", hint="Save or download it again.")
    if kind == "text/plain":
        content = clean(app.redact(content.decode())).encode()
    sha256, weight = hashlib.sha256(content).hexdigest(), weight_of(kind, content)
    return Given(Attachment(origin, app.redact(name), kind, size, sha256, weight, trust), content)


def _redirected() -> str:
    """Return the file that stdin is redirected from; empty if there is none."""
    try:
        number = sys.stdin.fileno()
        return os.path.realpath(f"/proc/self/fd/{number}") if stat.S_ISREG(os.fstat(number).st_mode) else ""
    except (OSError, ValueError, AttributeError):  # it is closed
        return ""


# --- stdin ----------------------------------------------------------------------------------------


def from_stdin(names: Sequence[str], *, is_taken: bool, is_quiet: bool = False) -> bytes:
    """Read what stdin gives beside the task; empty if it gives nothing. This waits, so call it before a loop runs.

    `-` among the names waits for stdin. Without it, a pipe that delivers nothing for a while is left alone, with one
    line.

    Args:
        is_taken: stdin is the task, or the messages of a chat.
        is_quiet: without the line.

    Raises:
        UsageError: it is too large, or is needed twice.
    """
    if "-" in names:
        if is_taken or names.count("-") > 1:
            raise UsageError("stdin cannot be given twice.", hint="Leave out `--attach -`.")
        return _read_stdin()
    return b"" if is_taken or not _is_piped(is_quiet=is_quiet) else _read_stdin()


def _is_piped(*, is_quiet: bool) -> bool:
    try:
        number = sys.stdin.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError, AttributeError):  # it is closed
        return False
    if not stat.S_ISFIFO(mode):
        return stat.S_ISREG(mode)
    if select.select([number], [], [], STDIN_WAIT_S)[0]:
        return True
    if not is_quiet:  # no warning, because a run has at most one
        silent = (
            f"The pipe on stdin was silent for {STDIN_WAIT_S:g} s and is left out; --attach - waits for it."
        )
        tell([Span(silent, "dim")])
    return False


def _read_stdin() -> bytes:
    try:
        return read_stream(sys.stdin.buffer, TEXT_BYTES)
    except Unreadable as error:
        hint = "Put it into a file, and attach that, or name it in the task."
        raise UsageError(f"stdin {error}.", hint=hint) from None


# --- mentions -------------------------------------------------------------------------------------


def mentioned(app: App, typed: str, workspace: Path) -> list[Given]:
    """Read each file of the workspace that a person mentioned as `@path` or `@"a path"`. Give this only what was
    typed into a chat: never what was pasted, piped or passed as an argument. A word that names no file there stays a
    word.

    Raises:
        UsageError: a file cannot be attached, or there are too many.
    """
    found: dict[str, None] = {}
    root = os.path.realpath(workspace)
    for quoted, plain in _MENTION.findall(typed):
        for name in (quoted or plain, plain.rstrip(_AFTER_A_NAME)):
            path = os.path.realpath(workspace / name) if name and "\0" not in name else ""
            if path and is_inside(root, path) and os.path.isfile(path):  # noqa: PTH113 - never raises
                found[name] = None
                break
    with _unsent():
        if len(found) > MAX_FILES:
            hint = f"Mention at most {MAX_FILES}."
            raise UsageError(f"{len(found)} mentioned files are too many.", hint=hint)
        return [_file(app, name, workspace, root) for name in found]


# --- messages -------------------------------------------------------------------------------------


async def message_with(app: App, text: str, settings: Settings, parts: Sequence[Given] = ()) -> Send:
    """Return a message. The contents of its parts are stored, each once, if all of it fits the model.

    Raises:
        UsageError: it is too long for the model. Nothing was stored.
    """
    words = Send(text, settings, tuple(each.attachment for each in parts))
    app.controller.check_fits(words)
    for each in parts:
        await app.store.blobs.put(each.content)
    return words
