"""The first program of a call under Landlock: takes away from itself what the fence does not allow, and becomes the
program of the call.

    python -I -S -c SOURCE RULES PROGRAM ARGUMENT...      RULES: an open file

The file has rules of three fields, each of which ends with a NUL: see `_fence_in` and `_furnish`. What this takes
away, nothing that it starts gets back. No process stays between. If any step fails, nothing begins. It uses little of
the standard library, so that it starts in milliseconds.
"""

# Pathlib would double the time that it takes to start.
# ruff: noqa: PTH102, PTH103, PTH120, PTH123, PTH211

from __future__ import annotations

import ctypes
import os
import sys
from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would take a third of the time
    from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of landlock_create_ruleset and so on, the same on all processors."""
_RULE_PATH, _RULE_PORT = 1, 2
_OF_FILES = 0b1100000000000111
"""What of the rights of Landlock means something for a file."""
_CONNECT = 2
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_DROP_FROM_BOUNDS, _AMBIENT, _CLEAR_ALL, _SECUREBITS = 24, 47, 4, 28
_MOST_CAPABILITIES = 64
_CAPABILITIES_V3 = 0x20080522
_ROOT_IS_NOBODY = 0b11101111
"""The number 0 gives no capability, now or later."""
_FAILED, _NOT_FOUND = 125, 127


def main() -> None:
    """Fence this process in, and become the program."""
    try:
        with open(int(sys.argv[1]), "rb") as file:
            fields = iter(file.read().split(b"\0"))
        rules: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for kind, subject, value in zip(fields, fields, fields, strict=False):
            rules.setdefault(kind, []).append((subject, value))
        _furnish(rules)
        _fence_in(rules)
    except OSError as error:
        print(f"The sandbox could not be made: {error}", file=sys.stderr)
        sys.exit(_FAILED)
    for ignored in (SIGPIPE, SIGXFSZ):  # Python ignores them, and a program keeps what is ignored
        signal(ignored, SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND)


def _fence_in(rules: dict[bytes, list[tuple[bytes, bytes]]]) -> None:
    """Take away all rights that are `handled`, but those to `opened` (descriptor, rights), `path` (path, rights) and
    `port` (number). Then refuse system calls by the `filter` (hexadecimal); `capset` is the number of one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = [ctypes.c_long] * 5
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]

    def ask(call: Any, *arguments: int) -> int:
        """Ask the kernel for something that must not fail."""
        result: int = call(*arguments, *[0] * (5 - len(arguments)))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    handled = b"".join(int(rights).to_bytes(8, sys.byteorder) for rights, _ in rules[b"handled"])
    text = ctypes.create_string_buffer(handled)
    ruleset = ask(libc.syscall, _CREATE, ctypes.addressof(text), len(handled))
    for fd, rights in _open(rules):
        allowed = rights if S_ISDIR(os.fstat(fd).st_mode) else rights & _OF_FILES
        told = _pair(allowed, fd)
        ask(libc.syscall, _ADD, ruleset, _RULE_PATH, ctypes.addressof(told))
        os.close(fd)
    for port, _ in rules.get(b"port", ()):
        told = _pair(_CONNECT, int(port))
        ask(libc.syscall, _ADD, ruleset, _RULE_PORT, ctypes.addressof(told))
    ask(libc.prctl, _NO_NEW_PRIVS, 1)
    _leave_capabilities(libc, ask, int(rules[b"capset"][0][0]))
    ask(libc.syscall, _RESTRICT, ruleset)
    os.close(ruleset)
    lines = ctypes.create_string_buffer(bytes.fromhex(rules[b"filter"][0][0].decode()))
    program = _pair(len(lines) // 8, ctypes.addressof(lines))
    ask(libc.prctl, _SECCOMP, _FILTER, ctypes.addressof(program))


def _furnish(rules: dict[bytes, list[tuple[bytes, bytes]]]) -> None:
    """Make what is its own: each `folder` (path), `file` (path, content) and `link` (path, target). What is there
    already was made by somebody else, and is not used.
    """
    for path, _ in rules.get(b"folder", ()):
        os.mkdir(path, 0o700)
    for path, content in rules.get(b"file", ()):
        with open(path, "xb") as file:
            file.write(content)
    for path, target in rules.get(b"link", ()):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        os.symlink(target, path)


def _open(rules: dict[bytes, list[tuple[bytes, bytes]]]) -> list[tuple[int, int]]:
    """Return what it may use, as open files with their rights. What is gone by now is left out."""
    found = [(int(fd), int(rights)) for fd, rights in rules.get(b"opened", ())]
    for path, rights in rules[b"path"]:
        try:
            found.append((os.open(path, os.O_PATH | os.O_CLOEXEC), int(rights)))
        except OSError:
            continue
    return found


def _pair(rights: int, number: int) -> Any:
    """Return a rule as the kernel reads it, of a path or a port."""
    return ctypes.create_string_buffer(
        rights.to_bytes(8, sys.byteorder) + number.to_bytes(8, sys.byteorder), 16
    )


def _leave_capabilities(libc: Any, ask: Any, capset: int) -> None:
    """Give up what root can do beyond the rights of files, for good."""
    if not os.geteuid():
        for number in range(_MOST_CAPABILITIES):
            if libc.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0):
                break
        ask(libc.prctl, _SECUREBITS, _ROOT_IS_NOBODY)
    libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(_CAPABILITIES_V3.to_bytes(8, sys.byteorder), 8)
    none = ctypes.create_string_buffer(24)
    ask(libc.syscall, capset, ctypes.addressof(header), ctypes.addressof(none))


if __name__ == "__main__":
    main()
