"""Finds what a call reaches: the programs and scripts that it runs, with their content, and its files and hosts.

A person who decides about a call sees it, and an approval binds to it. Other calls are not looked at.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.clock import SYSTEM_CLOCK, is_fresh
from holdfast.policy.listed import simple_commands
from holdfast.policy.rules import Facts
from holdfast.protocol.counts import counted
from holdfast.protocol.launchers import is_launcher
from holdfast.protocol.tools import Content, Reach
from holdfast.tools.facts import file_of

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""A larger file is compared by its size and times. No usual program or script is so large."""
MOST_PROGRAMS = 32
MOST_FILES = 32
MOST_HOSTS = 16
_MOST_COMMANDS = 64
_CHUNK_BYTES = 1024 * 1024
_URL = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s'"<>|;&()]{1,2000}""")


def reach_of(facts: Facts, binary: str, hosts: Iterable[str] = ()) -> Reach:
    """Return what the call reaches. This reads files, so it may block.

    Args:
        facts: What the gates found.
        binary: The program that a command begins with; empty if the call runs none.
        hosts: What its programs may reach by themselves, beside the hosts that it names.
    """
    files = [path.resolved for path in (*facts.paths, *facts.words) if path.resolved]
    run = islice(dict.fromkeys(each for each in _run(facts, binary) if each), MOST_PROGRAMS)
    return Reach(
        programs=tuple([content for path in run if (content := content_of(path)) is not None]),
        files=tuple(islice(dict.fromkeys(files), MOST_FILES)),
        hosts=tuple(islice(dict.fromkeys((*_hosts(facts), *hosts)), MOST_HOSTS)),
    )


def content_of(path: str) -> Content | None:
    """Return a file with the mark of its content; None if there is no such file."""
    looked_ms = SYSTEM_CLOCK.now_ms()
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    mark = _mark.__wrapped__ if is_fresh(found.st_ctime_ns, looked_ms) else _mark
    return Content(path, mark(path, identity))


@lru_cache(maxsize=1_024)
def _mark(path: str, identity: tuple[int, int, int, int, int]) -> str:
    """Return the mark of a file's content. Changed content has another identity, so it is read again."""
    size = identity[2]
    if size <= MAX_CONTENT_BYTES:
        digest = sha256()
        try:
            with Path(path).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
            return digest.hexdigest()
        except OSError:  # a program may be run without the right to read it
            pass
    return f"{counted(size, 'byte')}, {identity[3]}, {identity[4]}"


def _run(facts: Facts, binary: str) -> Iterator[str]:
    """Return the files of the programs that the commands begin with. If one of them runs what it is given, every
    file that the commands name may be its script."""
    if not facts.commands:
        return
    yield binary
    named = {
        word: None
        for command in facts.commands
        for words in islice(simple_commands(command), _MOST_COMMANDS)
        if (word := words[0]) is not None
    }
    for word in named:
        yield file_of(word, facts.workspace)
    if any(map(is_launcher, named)):
        yield from (path.resolved for path in facts.words)


def _hosts(facts: Facts) -> Iterator[str]:
    """Return the hosts of the addresses that the call names, with their ports."""
    found: Iterable[str] = (url for command in facts.commands for url in _URL.findall(command.text))
    for url in (*facts.urls, *found):
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            continue
        if parts.hostname:
            yield parts.hostname if port is None else f"{parts.hostname}:{port}"
