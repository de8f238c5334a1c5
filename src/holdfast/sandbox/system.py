"""What every sandbox shows of the system, what it hides there, and the limits that the kernel knows."""

# Pathlib makes an object for each of thousands of names.
# ruff: noqa: PTH112, PTH113, PTH115, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock

from holdfast.clock import SYSTEM_CLOCK
from holdfast.policy.paths import is_inside, is_within, secret_rule
from holdfast.protocol.fence import Fence

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
)  # fmt: skip
_SECRETS = (
    "etc/shadow*", "etc/gshadow*", "etc/sudoers*", "etc/ssh/*_key", "etc/ssl/private", "etc/krb5.keytab",
    "etc/kubernetes", "etc/docker/*.json", "etc/wireguard", "etc/NetworkManager/system-connections",
    "etc/letsencrypt", "etc/apt/auth.conf*", "etc/ppp/*-secrets", "etc/ipsec.secrets", "etc/mysql/debian.cnf",
)  # fmt: skip
_SETTINGS = "etc"
"""Where what others may not read is secret, whatever its name."""
_LOOKED_AT = (_SETTINGS, "opt", "usr/local", "usr/src")
"""Where people put programs and their settings. All else comes with the system, and everybody has it."""
_PRUNED = re.compile(
    r"\.git|node_modules|(?:site|dist)-packages|__pycache__|python\d.*|doc|man|include|linux-.*"
)
"""Folders of other people's files."""
MOST_NAMES = 10_000
"""How many names below each of these folders are looked at. What lies less deep comes first."""
MOST_OF_FOLDER = 32
"""A folder with more secret files is hidden as a whole."""
MOST_HIDDEN = 256
"""Each mount takes time, at every start of a command."""
_AUTHORITIES = "/usr/share/ca-certificates/"
"""Where the certificates of the public authorities lie. Hundreds of links lead there."""
_PEM = (".pem", ".key")
_PEM_BYTES = 1 << 20
_LABEL = re.compile(rb"-----BEGIN ([^\r\n]{1,60}?)-----")
_PUBLIC = frozenset({
    b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CERTIFICATE", b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST",
    b"X509 CRL", b"PUBLIC KEY", b"RSA PUBLIC KEY", b"DH PARAMETERS", b"EC PARAMETERS", b"PGP PUBLIC KEY BLOCK",
})  # fmt: skip
_PROGRAMS = frozenset(
    {
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/run/current-system/sw/bin",
    }
)
"""Where programs of the system are, also where root may change them."""
_MOST_OPEN_FILES = 4096
_IN_TURN = 256
"""How many folders outside of `/etc` are asked before a command whether they have changed: 0.4 ms. If there are more,
they take turns.
"""
_FRESH_NS = 2_050_000_000
"""What changed within this time may change again and have the same time, or get the mode that makes it secret."""

_Mark = tuple[int, int, int]


class Secrets:
    """What nobody may read of the system, and all that was looked at to find it, with the mark that each has while
    it does not change.
    """

    def __init__(self, top: str) -> None:
        self._top = top
        self._lock = Lock()
        self._settings: list[tuple[str, _Mark | None]] = []
        self._others: list[tuple[str, _Mark | None]] = []
        self._turn = 0
        self.found: tuple[str, ...] | None = None

    def now(self) -> tuple[str, ...]:
        """Return it as it is now, as far as the marks tell. The object is another one after each look."""
        with self._lock:
            if self.found is None or self._has_changed():
                self.found = self._looked()
            return self.found

    def _has_changed(self) -> bool:
        begin, self._turn = self._turn, self._turn + _IN_TURN
        if self._turn >= len(self._others):
            self._turn = 0
        asked = (self._settings, self._others[begin : begin + _IN_TURN])
        return any(_mark(path) != mark for each in asked for path, mark in each)

    def _looked(self) -> tuple[str, ...]:
        """Look at all of it."""
        top, now_ns = self._top, SYSTEM_CLOCK.now_ms() * 1_000_000
        roots = [os.path.join(top, name) for name in _LOOKED_AT]
        seen = dict.fromkeys(roots[0] + os.path.dirname(each).removeprefix(_SETTINGS) for each in _SECRETS)
        marks = {path: _mark(path) for path in seen}
        known = {str(path) for pattern in _SECRETS for path in Path(top).glob(pattern)}
        found = [path for root in roots for path in _below(root, roots, known, marks)]
        hidden = known.union(_few(found, roots))
        inner = {path for path in hidden if not hidden.isdisjoint(map(str, Path(path).parents))}
        lasting = [
            (path, None if mark is not None and now_ns - mark[0] < _FRESH_NS else mark)
            for path, mark in marks.items()
        ]
        self._settings = [each for each in lasting if is_inside(roots[0], each[0])]
        self._others = [each for each in lasting if not is_inside(roots[0], each[0])]
        return tuple(sorted(hidden - inner))


@cache
def secrets_at(top: str) -> Secrets:
    """Return the secrets of a system, the same object each time."""
    return Secrets(top)


def secrets_of_system(top: str = "/") -> tuple[str, ...]:
    """Return what nobody may read there now. It is looked for again if something has changed. A process of root has
    root's access to files, whatever it calls itself.
    """
    return secrets_at(top).now()


def is_shown(path: str) -> bool:
    """Return whether a sandbox shows a path anyway. To show it again would show what is hidden in it."""
    if not is_within(SYSTEM, path):
        return False
    known = secrets_at("/")
    return not is_within(known.now() if known.found is None else known.found, path)


def program_outside(name: str) -> str:
    """Return the file of a program that Holdfast runs outside of every sandbox, with links followed; empty if nothing
    was found.

    A folder in PATH may lie in a workspace, as that of a virtual environment does. So one that this user can change
    does not count, unless it leads to a program of the system, and neither does a relative one.
    """
    for folder in os.get_exec_path():
        if found := shutil.which(name, path=folder) if folder.startswith("/") else None:
            real = os.path.realpath(found)
            parent = os.path.dirname(real)
            if parent in _PROGRAMS or not os.access(parent, os.W_OK):
                return real
    return ""


def limits(fence: Fence) -> Mapping[str, int]:
    """Return the limits of each process, by their names."""
    return {
        "RLIMIT_DATA": fence.memory_bytes,
        "RLIMIT_FSIZE": fence.file_bytes,
        "RLIMIT_CPU": fence.cpu_s,
        "RLIMIT_NOFILE": _MOST_OPEN_FILES,
        "RLIMIT_CORE": 0,
    }


def _mark(path: str) -> _Mark | None:
    """Return what changes with a file or folder; None if nobody can look at it."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_ctime_ns, facts.st_ino, facts.st_dev


def _below(
    root: str, roots: Collection[str], known: Collection[str], marks: dict[str, _Mark | None]
) -> Iterator[str]:
    """Yield the secrets below one of the folders, the least deep first. Note the marks of what is looked at."""
    following, names = deque([root]), 0
    is_strict = root.endswith(f"/{_SETTINGS}")
    while following and names < MOST_NAMES:
        folder = following.popleft()
        marks.setdefault(folder, _mark(folder))
        try:
            with os.scandir(folder) as entries:
                listed = [*islice(entries, MOST_NAMES - names)]
        except OSError:
            continue
        names += len(listed)
        last = folder.rpartition("/")[2]
        for entry in listed:
            is_folder = entry.is_dir(follow_symlinks=False)
            if secret_rule(f"{last}/{entry.name}"):
                yield from _named(entry, roots, marks)
            elif is_strict and _is_kept_from_others(entry, is_folder=is_folder):
                yield entry.path
            elif is_folder and entry.path not in known and not _PRUNED.fullmatch(entry.name):
                following.append(entry.path)


def _named(entry: os.DirEntry[str], roots: Collection[str], marks: dict[str, _Mark | None]) -> Iterator[str]:
    """Yield what has the name of a secret, or where it leads, unless its content is public. Note the mark of that."""
    path = entry.path
    if entry.is_symlink():
        with suppress(OSError):
            if os.readlink(path).startswith(_AUTHORITIES):
                return
        marks.setdefault(path, _mark(path))
        path = os.path.realpath(path)
    elif entry.name.lower().endswith(_PEM):
        marks.setdefault(path, _mark(path))
    if not any(path != root and is_inside(root, path) for root in roots) or not os.access(path, os.R_OK):
        return
    if os.path.isdir(path) or (os.path.isfile(path) and not _is_public(entry.name, path)):
        yield path


def _is_kept_from_others(entry: os.DirEntry[str], *, is_folder: bool) -> bool:
    """Return whether its owner lets others not read it, but us."""
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return False
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:  # it is gone
        return False
    if is_folder:
        return not mode & 0o001 and os.access(entry.path, os.X_OK)
    return not mode & 0o004 and os.access(entry.path, os.R_OK)


def _is_public(name: str, path: str) -> bool:
    """Return whether a file has nothing but certificates and public keys, as many have that are named like keys."""
    if not name.lower().endswith(_PEM):
        return False
    try:
        with open(path, "rb") as file:
            content = file.read(_PEM_BYTES + 1)
    except OSError:
        return False
    labels = {*_LABEL.findall(content)}
    return bool(labels) and labels <= _PUBLIC and len(content) <= _PEM_BYTES


def _few(found: Iterable[str], roots: Collection[str]) -> Iterator[str]:
    """Yield what was found, and one folder instead of very many files of it."""
    by_folder = dict[str, list[str]]()
    for path in found:
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    few = (
        [folder] if len(paths) > MOST_OF_FOLDER and folder not in roots else paths
        for folder, paths in by_folder.items()
    )
    yield from islice((path for paths in few for path in paths), MOST_HIDDEN)
