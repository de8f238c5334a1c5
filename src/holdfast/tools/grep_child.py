"""The matching half of grep, in a process that can be killed: `python -I -S grep_child.py FOLDER_FD < request`.

It opens the files that the request names, below the given folder, follows no link, and prints the lines that match.
`search` chooses the files. This skips files that are secret under another name, and Holdfast's own. Standard
library only.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MAX_FILE_BYTES = 32 << 20
MAX_LINE_BYTES = 10_000
MAX_SHOWN_CHARS = 400
_CUT_WORD = re.compile(r"[\w+/=.~%-]+\Z")
_END_OF_WORD = re.compile(r"\A[\w+/=.~%-]+")
"""A line that is very long is read in pieces, and the next one may begin within a secret."""


def main() -> None:
    """Print `path:line: text` for every matching line, up to a limit."""
    request = json.load(sys.stdin)
    pattern, left = re.compile(request["pattern"]), request["max_lines"]
    own = {tuple(identity) for identity in request["own"]}
    secret = {tuple(identity) for identity in request["secret"]}
    is_secret_complete = False
    for path in request["files"]:
        try:
            with _opened(int(sys.argv[1]), path) as fd:
                facts = os.fstat(fd)
                if (facts.st_dev, facts.st_ino) in own:
                    continue
                if facts.st_nlink > 1:
                    if not is_secret_complete:  # only files with several names need it
                        secret.update(_files_under(request["homes"]))
                        is_secret_complete = True
                    if (facts.st_dev, facts.st_ino) in secret:
                        continue
                if facts.st_size > MAX_FILE_BYTES:
                    print(f"[{_shown(path)} is larger than {MAX_FILE_BYTES >> 20} MiB: not searched]")
                    continue
                for number, line in _matches(fd, pattern):
                    if left == 0:
                        print("[more lines match: narrow the search]", flush=True)
                        return
                    left -= 1
                    print(f"{_shown(request['prefix'] + path)}:{number}: {line}", flush=True)
        except OSError:
            continue


def _matches(fd: int, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return
    with open(fd, "rb", closefd=False) as file:
        if b"\0" in file.peek(8192)[:8192]:
            return
        number, is_new = 0, True
        while piece := file.readline(MAX_LINE_BYTES):
            number += is_new
            line = piece.decode(errors="replace").rstrip("\r\n")
            if pattern.search(line):
                shown = line if is_new else _END_OF_WORD.sub("", line)
                yield number, shown if len(shown) <= MAX_SHOWN_CHARS else _begin(shown) + " ..."
            is_new = piece.endswith(b"\n")


def _begin(line: str) -> str:
    """Return the begin of a long line, without the word that is cut: nobody would mask a part of a secret."""
    return _CUT_WORD.sub("", line[: MAX_SHOWN_CHARS + 1])[:MAX_SHOWN_CHARS]


@contextmanager
def _opened(folder: int, path: str) -> Iterator[int]:
    """Open the file, one name at a time. A link on the way is an error."""
    *folders, name = path.split("/")
    here = os.dup(folder)
    try:
        for part in folders:
            there = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = there
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=here)
    finally:
        os.close(here)
    try:
        yield fd
    finally:
        os.close(fd)


def _files_under(folders: list[str]) -> Iterator[tuple[int, int]]:
    following = [*folders]
    while following:
        with suppress(OSError), os.scandir(following.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    following.append(entry.path)
                else:
                    with suppress(OSError):
                        facts = entry.stat(follow_symlinks=False)
                        yield facts.st_dev, facts.st_ino


def _shown(name: str) -> str:
    """Return a name as valid text on one line, so that no file can look like several."""
    text = os.fsencode(name).decode(errors="replace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


if __name__ == "__main__":
    main()
