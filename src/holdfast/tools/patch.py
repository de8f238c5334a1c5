"""Reads a patch: a unified diff, also as git writes it, or the form between `*** Begin Patch` and `*** End Patch`.

It only reads the text. `hunks` applies what it says to the text of a file, and `patching` changes the files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.redact import begin_of
from holdfast.tools.blocking import Refused

PATCH_CHARS = 4 << 20
MOST_FILES = 100
MOST_HUNKS = 500
"""In all files together."""
MOST_ANCHORS = 8

Kind = Literal["add", "delete", "update"]
_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NOTHING = "/dev/null"
_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_VERBS: dict[str, Kind] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
_MOVE = "*** Move to: "
_ESCAPED = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_REGULAR = re.compile(r"100(644|755)")


class PatchError(Refused):
    """The patch cannot be read, or does not fit. The message names the file and the hunk, for the model."""


class Hunk(msgspec.Struct, frozen=True):
    """Lines that belong together, each with its sign: a space (stays), `-` or `+`."""

    number: int
    """Counted from 1 in its file."""
    lines: tuple[tuple[str, str], ...]
    """Sign and text. The text ends in a newline, unless the patch says that it does not."""
    start: int = 0
    """The number of its first line in the old file; 0: the patch names none."""
    anchors: tuple[str, ...] = ()
    """Lines that come before it, in this order, as `@@ LINE` says."""
    ends_file: bool = False

    @property
    def old(self) -> list[str]:
        """The lines that the file must have."""
        return [text for sign, text in self.lines if sign != "+"]


class FilePatch(msgspec.Struct, frozen=True):
    """What happens to one file."""

    kind: Kind
    path: str
    new_path: str = ""
    """Where it moves; empty: it stays."""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    """The text of a new file."""
    is_executable: bool = False
    """Whether the patch wants a new file to be a program."""
    is_checked: bool = True
    """Whether the patch has the lines of the file that it deletes."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that it names."""
        return (self.path, self.new_path) if self.new_path else (self.path,)


def paths_in(text: str) -> tuple[str, ...]:
    """Return all paths that a patch names; none if it cannot be read, because then it changes nothing."""
    try:
        return tuple(dict.fromkeys(path for each in patch_of(text) for path in each.paths))
    except PatchError:
        return ()


def patch_of(text: str) -> tuple[FilePatch, ...]:
    """Read a patch.

    Raises:
        PatchError: it cannot be read.
    """
    if len(text) > PATCH_CHARS:
        raise PatchError(f"The patch is longer than {PATCH_CHARS:,} characters. Make several of it.")
    lines = text.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    files = _Begun(lines).read() if first == _BEGIN else _Unified(lines).read()
    if not files:
        raise PatchError(
            "This is not a patch. Begin it with `*** Begin Patch`, or with the lines `--- a/PATH` and `+++ b/PATH`."
        )
    if len(files) > MOST_FILES:
        raise PatchError(f"The patch changes more than {MOST_FILES} files. Make several of it.")
    if sum(len(each.hunks) for each in files) > MOST_HUNKS:
        raise PatchError(f"The patch has more than {MOST_HUNKS} hunks. Make several of it.")
    seen: set[str] = set()
    for path in (path for each in files for path in each.paths):
        if path in seen:
            raise PatchError(f"{path} is in the patch twice. Put all its hunks under one header.")
        seen.add(path)
    return files


def _body(lines: Sequence[str], number: int, path: str, **rest: object) -> Hunk:
    """Make a hunk of its lines as they are in the patch."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("\\"):
            if not found:
                raise PatchError(f"{path}, hunk {number}: it begins with a line about a missing newline.")
            sign, text = found[-1]
            found[-1] = sign, text.removesuffix("\n")
        elif line in ("", "\r"):  # editors and models take the space of an empty line away
            found.append((" ", f"{line}\n"))
        elif line[0] in " +-":
            found.append((line[0], f"{line[1:]}\n"))
        else:
            raise PatchError(
                f"{path}, hunk {number}: the line {begin_of(line, 80)!r} begins neither with a space nor with `-` or "
                "`+`."
            )
    if all(sign == " " for sign, _ in found):
        raise PatchError(f"{path}, hunk {number}: it changes nothing.")
    return msgspec.structs.replace(Hunk(number, tuple(found)), **rest)


# --- unified diffs --------------------------------------------------------------------------------


class _Unified:
    """Reads a unified diff. What is between files, like the message of a commit, is passed over."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines[:-1] if not lines[-1] else lines
        self._at = 0

    def read(self) -> tuple[FilePatch, ...]:
        files: list[FilePatch] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                files.append(self._git())
            elif self._is_header():
                files.append(self._file(*self._names()))
            elif line.startswith("@@ "):
                raise PatchError(f"Line {self._at + 1}: a hunk comes before the file that it belongs to.")
            else:
                self._at += 1
            if len(files) > MOST_FILES:
                break
        return tuple(files)

    def _is_header(self) -> bool:
        here = self._lines[self._at : self._at + 2]
        return len(here) == 2 and here[0].startswith("--- ") and here[1].startswith("+++ ")

    def _names(self) -> tuple[str, str]:
        old, new = [_path(line[4:]) for line in self._lines[self._at : self._at + 2]]
        self._at += 2
        return _plain(old, new)

    def _git(self) -> FilePatch:
        """Read what follows `diff --git`: its own headers, then the ones of a plain diff, if lines changed."""
        named = self._lines[self._at][len("diff --git ") :].rstrip("\r")
        self._at += 1
        said: dict[str, str] = {}
        while self._at < len(self._lines) and not self._is_header():
            line = self._lines[self._at].rstrip("\r")
            head = next((each for each in _GIT_HEADS if line.startswith(each)), "")
            if not head:
                break
            said[head] = line[len(head) :]
            self._at += 1
        old, new = self._names() if self._at < len(self._lines) and self._is_header() else _halves(named)
        path = new if old == _NOTHING else old
        for head in _NOT_DONE:
            if head in said:
                raise PatchError(f"{path}: {_NOT_DONE[head]}")
        mode = said.get("new file mode ", said.get("deleted file mode ", "100644")).strip()
        if not _REGULAR.fullmatch(mode):
            raise PatchError(f"{path}: only regular files can be patched, and its mode is {mode[:12]!r}.")
        is_rename = "rename from " in said and "rename to " in said
        if is_rename:
            old, new = _path(said["rename from "]), _path(said["rename to "])
        elif "new file mode " in said:
            old, new = _NOTHING, path
        elif "deleted file mode " in said:
            old, new = path, _NOTHING
        return self._file(old, new, is_executable=mode.endswith("755"), is_rename=is_rename)

    def _file(self, old: str, new: str, *, is_executable: bool = False, is_rename: bool = False) -> FilePatch:
        path = new if old == _NOTHING else old
        if not path or path == _NOTHING:
            raise PatchError(f"Line {self._at}: the header names no file.")
        if old != new and _NOTHING not in (old, new) and not is_rename:
            raise PatchError(
                f"Line {self._at}: the header names two files, {old} and {new}. To move a file, use `diff "
                "--git` with `rename from` and `rename to`."
            )
        hunks = self._hunks(path)
        if old == _NOTHING:
            if any(each.old for each in hunks) or len(hunks) > 1:
                raise PatchError(f"{path}: it is new, so it has one hunk, and all its lines begin with `+`.")
            content = "".join(text for each in hunks for _, text in each.lines)
            return FilePatch("add", path, content=content, is_executable=is_executable)
        if new == _NOTHING:
            if any(sign != "-" for each in hunks for sign, _ in each.lines):
                raise PatchError(f"{path}: it is deleted, so all its lines begin with `-`.")
            return FilePatch("delete", path, hunks=hunks)
        if not hunks and old == new:
            raise PatchError(f"{path}: the patch has no hunk for it.")
        return FilePatch("update", path, "" if new == old else new, hunks)

    def _hunks(self, path: str) -> tuple[Hunk, ...]:
        found: list[Hunk] = []
        while self._at < len(self._lines) and self._lines[self._at].startswith("@@"):
            header, number = self._lines[self._at], len(found) + 1
            counts = _HEADER.match(header)
            self._at += 1
            if counts is None:
                if header.strip("@ \r"):
                    raise PatchError(
                        f"{path}, hunk {number}: its header is {begin_of(header, 80)!r}, and not like "
                        "`@@ -1,3 +1,4 @@`."
                    )
                found.append(_body(self._lines_of_hunk(), number, path))
                continue
            old, new = [1 if count is None else int(count) for count in (counts[2], counts[4])]
            first = int(counts[1])
            body = self._counted(old, new) or self._lines_of_hunk()
            start = first if old else first + 1
            found.append(_body(body, number, path, start=start))
            if len(found) > MOST_HUNKS:
                break
        return tuple(found)

    def _counted(self, old: int, new: int) -> list[str]:
        """Return as many lines as the header says; none if it has counted wrong."""
        at = self._at
        while (old > 0 or new > 0) and at < len(self._lines):
            sign = self._lines[at][:1]
            if sign not in ("", "\r", " ", "+", "-", "\\"):
                return []
            old -= sign in ("", "\r", " ", "-")
            new -= sign in ("", "\r", " ", "+")
            at += 1
        if at < len(self._lines) and self._lines[at].startswith("\\"):
            at += 1
        goes_on = at < len(self._lines) and self._lines[at][:1] in (" ", "+", "-")
        is_other = goes_on and (self._lines[at].startswith("--- ") or self._lines[at].rstrip() == "--")
        if old or new or (goes_on and not is_other):
            return []
        found, self._at = self._lines[self._at : at], at
        return found

    def _lines_of_hunk(self) -> list[str]:
        """Return the lines up to the next header, or to the end of the patch."""
        begin = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(("@@", "diff --git ")) or self._is_header():
                break
            if line[:1] not in ("", "\r", " ", "+", "-", "\\"):
                break
            self._at += 1
        found = self._lines[begin : self._at]
        while found and found[-1] in ("", "\r"):
            found.pop()
        return found


_GIT_HEADS = (
    "old mode ", "new mode ", "deleted file mode ", "new file mode ", "copy from ", "copy to ", "rename from ",
    "rename to ", "similarity index ", "dissimilarity index ", "index ", "GIT binary patch", "Binary files ",
)  # fmt: skip
_NOT_DONE = {
    "copy from ": "a copy is not made by a patch. Write the new file as an added one.",
    "new mode ": "a patch does not change permissions. Leave the mode out, and use chmod.",
    "GIT binary patch": "only text can be patched.",
    "Binary files ": "only text can be patched.",
}


def _path(text: str) -> str:
    """Return the path of a header line, without the time that may follow it."""
    text = text.rstrip("\r")
    if not text.startswith('"'):
        return text.split("\t", 1)[0].rstrip(" ")
    end = _ending(text)
    octets = bytearray()
    at = 1
    for found in _ESCAPED.finditer(text, 1, end):
        octets += text[at : found.start()].encode(errors="replace")
        code, at = found[1], found.end()
        octets += bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code).encode()
    octets += text[at:end].encode(errors="replace")
    return octets.decode(errors="replace")


def _ending(text: str) -> int:
    """Return where the quotes are closed that a text begins with."""
    at = 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return min(at, len(text))


def _plain(old: str, new: str) -> tuple[str, str]:
    """Return both paths without `a/` and `b/`, if a diff with such prefixes wrote them."""
    if (old == _NOTHING or old.startswith("a/")) and (new == _NOTHING or new.startswith("b/")):
        return old if old == _NOTHING else old[2:], new if new == _NOTHING else new[2:]
    return old, new


def _halves(named: str) -> tuple[str, str]:
    """Return both paths of a `diff --git` line. Without quotes, only equal ones can be read."""
    if named.startswith('"'):
        end = _ending(named) + 1
        return _plain(_path(named[:end]), _path(named[end:].strip(" ")))
    middle = len(named) // 2
    return _plain(named[:middle], named[middle + 1 :])


# --- the form between `*** Begin Patch` and `*** End Patch` -----------------------------------------


class _Begun:
    """Reads the form between `*** Begin Patch` and `*** End Patch`."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = next(at for at, line in enumerate(lines) if line.strip()) + 1

    def read(self) -> tuple[FilePatch, ...]:
        files: list[FilePatch] = []
        while (line := self._line()).strip() != _END:
            verb = next((each for each in _VERBS if line.startswith(each)), "")
            if not verb and line.strip():
                raise PatchError(
                    f"Line {self._at + 1}: {begin_of(line, 80)!r} is not `*** Add File: PATH`, "
                    "`*** Delete File: PATH`, "
                    f"`*** Update File: PATH` or `{_END}`."
                )
            self._at += 1
            if verb:
                files.append(self._file(_VERBS[verb], line[len(verb) :].strip()))
            if len(files) > MOST_FILES:
                break
        return tuple(files)

    def _line(self) -> str:
        if self._at >= len(self._lines):
            raise PatchError(f"The patch does not end in `{_END}`.")
        return self._lines[self._at]

    def _file(self, kind: Kind, path: str) -> FilePatch:
        if not path:
            raise PatchError(f"Line {self._at}: the header names no file.")
        if kind == "delete":
            return FilePatch(kind, path, is_checked=False)
        if kind == "add":
            return FilePatch(kind, path, content=self._content(path))
        new_path = ""
        if self._line().startswith(_MOVE):
            new_path = self._line()[len(_MOVE) :].strip()
            self._at += 1
        hunks = self._hunks(path)
        if not hunks and new_path in ("", path):
            raise PatchError(f"{path}: the patch has no hunk for it.")
        return FilePatch(kind, path, "" if new_path == path else new_path, hunks)

    def _content(self, path: str) -> str:
        found: list[str] = []
        while not self._line().startswith("***"):
            line = self._line()
            if not line.startswith("+") and line.strip():
                raise PatchError(
                    f"{path}: it is new, so every line begins with `+`, but {begin_of(line, 80)!r} does not."
                )
            if line.startswith("+"):
                found.append(f"{line[1:]}\n")
            self._at += 1
        return "".join(found)

    def _hunks(self, path: str) -> tuple[Hunk, ...]:
        found: list[Hunk] = []
        while not self._is_over() and len(found) <= MOST_HUNKS:
            anchors: list[str] = []
            start = 0
            while self._line().startswith("@@"):
                header = self._line().rstrip("\r")
                counts = _HEADER.match(header)
                if counts is not None:
                    start = int(counts[1]) if counts[2] != "0" else int(counts[1]) + 1
                elif header[2:].strip():
                    anchors.append(header[2:].strip())
                self._at += 1
            if len(anchors) > MOST_ANCHORS:
                raise PatchError(
                    f"{path}, hunk {len(found) + 1}: it has more than {MOST_ANCHORS} lines after `@@`."
                )
            begin = self._at
            while not self._is_over() and not self._line().startswith(("@@", _END_OF_FILE)):
                self._at += 1
            body = self._lines[begin : self._at]
            ends_file = self._line().startswith(_END_OF_FILE)
            self._at += ends_file
            while body and body[-1] in ("", "\r"):
                body.pop()
            if not body and not anchors and not start and not ends_file:
                continue  # empty lines between files
            rest = {"start": start, "anchors": tuple(anchors), "ends_file": ends_file}
            found.append(_body(body, len(found) + 1, path, **rest))
        return tuple(found)

    def _is_over(self) -> bool:
        line = self._line()
        return line.startswith("***") and not line.startswith(_END_OF_FILE)
