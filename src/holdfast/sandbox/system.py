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

from holdfast.clock import COARSE_MS, SYSTEM_CLOCK
from holdfast.policy.paths import is_inside, is_within, secret_rule
from holdfast.protocol.fence import Fence
from holdfast.sandbox.watched import Watched

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
)  # fmt: skip
PRIVATE_BYTES = 1 << 30
"""How large each place in memory may become that a program has for itself."""
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
PROGRAMS = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/run/current-system/sw/bin",
)  # fmt: skip
"""Where programs of the system are, also where root may change them."""
LOADED = ("/usr/local/lib", "/usr/lib", "/lib", "/lib64", "/usr/libexec", "/etc")
"""Where what they load is, and what they obey."""
_MOST_OPEN_FILES = 4096
_TOGETHER = 4
"""How many times the memory of one process all of them may use."""
_IN_TURN = 32
"""How many of the places that the kernel watches are asked before a command, too, whether they have changed: it
cannot watch everything (see `watched`). They take turns.
"""
_UNWATCHED_IN_TURN = 256
"""How many of the others outside of `/etc` are asked: 0.4 ms."""
_FRESH_NS = COARSE_MS * 1_000_000
"""What changed within this time may change again and have the same time, or get the mode that makes it secret."""

_Mark = tuple[int, int, int]
_Place = tuple[str, _Mark | None]


class _Looked:
    """What was looked at: the kernel watches it from before that, or it has the mark that it had then."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.is_watched = dict[str, bool]()
        self.marks = dict[str, _Mark | None]()

    def note(self, path: str) -> None:
        """Note that a file or folder is looked at next."""
        if path not in self.marks:
            self.is_watched[path] = self.watched.add(path)
            self.marks[path] = _mark(path)


class Secrets:
    """What nobody may read of the system, and all that was looked at to find it."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._lock = Lock()
        self._watched = Watched()
        self._each_time: list[_Place] = []
        self._others: list[tuple[int, list[_Place]]] = []
        """What is asked in turns, and how many of it at once."""
        self._turns = 0
        self.found: tuple[str, ...] | None = None

    def now(self) -> tuple[str, ...]:
        """Return it as it is now, as far as can be told. The object is another one after each look."""
        with self._lock:
            if self.found is None or self._has_changed():
                self.found = self._look()
            return self.found

    def _has_changed(self) -> bool:
        asked = [self._each_time]
        for number, places in self._others:
            begin = number * (self._turns % (len(places) // number + 1))
            asked.append(places[begin : begin + number])
        self._turns += 1
        return self._watched.have_changed() or any(
            _mark(path) != mark for each in asked for path, mark in each
        )

    def _look(self) -> tuple[str, ...]:
        """Look at all of it."""
        top, now_ns, looked = self._top, SYSTEM_CLOCK.now_ms() * 1_000_000, _Looked()
        self._watched.close()
        self._watched = looked.watched
        roots = [os.path.join(top, name) for name in _LOOKED_AT]
        for pattern in _SECRETS:
            looked.note(roots[0] + os.path.dirname(pattern).removeprefix(_SETTINGS))
        known = {str(path) for pattern in _SECRETS for path in Path(top).glob(pattern)}
        found = [path for root in roots for path in _below(root, roots, known, looked)]
        hidden = known.union(_few(found, roots))
        inner = {path for path in hidden if not hidden.isdisjoint(map(str, Path(path).parents))}
        each_time, watched, others = list[_Place](), list[_Place](), list[_Place]()
        for path, mark in looked.marks.items():
            is_lasting = looked.is_watched[path] or mark is None or now_ns - mark[0] >= _FRESH_NS
            place = path, mark if is_lasting else None
            if looked.is_watched[path]:
                watched.append(place)
            else:
                (each_time if is_inside(roots[0], path) else others).append(place)
        self._each_time = each_time
        self._others = [(_IN_TURN, watched), (_UNWATCHED_IN_TURN, others)]
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
            if os.path.dirname(real) in PROGRAMS or not any(
                map(_may_change, (real, *map(str, Path(real).parents)))
            ):
                return real
    return ""


def search_path(path: str, places: Iterable[str]) -> str:
    """Return a PATH without the folders in which a command could have put a program: those in the places where it may
    write, and relative ones. What a person chose is looked for in the rest.
    """
    roots = [*map(os.path.realpath, places)]
    folders = (each for each in path.split(os.pathsep) if each.startswith("/"))
    return os.pathsep.join(
        each for each in folders if not (is_within(roots, each) or is_within(roots, os.path.realpath(each)))
    )


def _may_change(path: str) -> bool:
    """Return whether this user can change a file or folder. Its owner can, also without the right to write."""
    facts = os.stat(path)
    is_ours = facts.st_uid == os.geteuid() and not os.statvfs(path).f_flag & os.ST_RDONLY
    return is_ours or os.access(path, os.W_OK)


def memory_together(fence: Fence) -> int:
    """Return the most memory that all processes of a command may use together: a few times that of one, but no more
    than half of what the machine has.
    """
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(fence.memory_bytes, min(_TOGETHER * fence.memory_bytes, half))


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


def _below(root: str, roots: Collection[str], known: Collection[str], looked: _Looked) -> Iterator[str]:
    """Yield the secrets below one of the folders, the least deep first. Note what is looked at."""
    following, names = deque([root]), 0
    is_strict = root.endswith(f"/{_SETTINGS}")
    while following and names < MOST_NAMES:
        folder = following.popleft()
        looked.note(folder)
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
                yield from _named(entry, roots, looked)
            elif is_strict and _is_kept_from_others(entry, is_folder=is_folder):
                yield entry.path
            elif is_folder and entry.path not in known and not _PRUNED.fullmatch(entry.name):
                following.append(entry.path)


def _named(entry: os.DirEntry[str], roots: Collection[str], looked: _Looked) -> Iterator[str]:
    """Yield what has the name of a secret, or where it leads, unless its content is public. Note that one."""
    path = entry.path
    if entry.is_symlink():
        with suppress(OSError):
            if os.readlink(path).startswith(_AUTHORITIES):
                return
        looked.note(path)
        path = os.path.realpath(path)
    elif entry.name.lower().endswith(_PEM):
        looked.note(path)
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
