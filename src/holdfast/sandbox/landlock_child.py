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
from errno import ENOENT
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would take a third of the time
    from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of landlock_create_ruleset and so on, the same on all processors."""
_RULE_PATH = 1
_OF_FILES = 0b1100000000000111
"""What of the rights of Landlock means something for a file."""
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_WITH_FILTER, _LISTENING = 1, 1 << 3 | 1 << 5
"""SECCOMP_SET_MODE_FILTER, and SECCOMP_FILTER_FLAG_NEW_LISTENER with _WAIT_KILLABLE_RECV: no signal but a deadly one
interrupts a call that waits for its answer."""
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
    why = _become(sys.argv[2:])
    print(f"{sys.argv[2]}: {why}", file=sys.stderr)
    sys.exit(_NOT_FOUND)


def _become(words: list[str]) -> str:
    """Become the program, or return why that cannot be. `os.execvp` does the same, and would import a module that is
    out of reach by now.
    """
    folders = [""] if "/" in words[0] else os.environ.get("PATH", os.defpath).split(":")
    why = os.strerror(ENOENT)
    for folder in folders:
        try:
            os.execv(f"{folder}/{words[0]}" if folder else words[0], words)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            why = os.strerror(error.errno or ENOENT)
    return why


def _fence_in(rules: dict[bytes, list[tuple[bytes, bytes]]]) -> None:
    """Take away all rights that are `handled`, but those to `opened` (descriptor, rights) and `path` (path, rights).
    Then refuse system calls by the `filter` (hexadecimal); `capset` is the number of one, and `tag` a limit by which
    all that this process starts is known. What the filter asks about goes out through a `way` (descriptor, number of
    the call that installs such a filter).
    """
    ways = [_way(int(fd), int(number)) for fd, number in rules.get(b"way", ())]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = [ctypes.c_long] * 5
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    libc.setrlimit.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]

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
    for limit, tag in rules[b"tag"]:
        both = _pair(int(tag), int(tag))
        ask(libc.setrlimit, int(limit), ctypes.addressof(both))
    ask(libc.prctl, _NO_NEW_PRIVS, 1)
    _leave_capabilities(libc, ask, int(rules[b"capset"][0][0]))
    ask(libc.syscall, _RESTRICT, ruleset)
    os.close(ruleset)
    lines = ctypes.create_string_buffer(bytes.fromhex(rules[b"filter"][0][0].decode()))
    program = _pair(len(lines) // 8, ctypes.addressof(lines))
    if not ways:
        ask(libc.prctl, _SECCOMP, _FILTER, ctypes.addressof(program))
    for installation, give in ways:
        give(ask(libc.syscall, installation, _WITH_FILTER, _LISTENING, ctypes.addressof(program)))


def _way(fd: int, installation: int) -> tuple[int, Any]:
    """Return the number of the call that installs a filter with a listener, and what gives it to the proxy."""
    # Only calls with a network pay for this. Inside the fence, the module may be out of reach.
    from _socket import SCM_RIGHTS, SOL_SOCKET, socket

    outside = socket(fileno=fd)

    def give(listener: int) -> None:
        try:
            outside.sendmsg([b"+"], [(SOL_SOCKET, SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        except OSError:
            pass  # the proxy is gone: each connection of the program fails
        os.close(listener)
        outside.close()

    return installation, give


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
    """Return two numbers as the kernel reads them: a rule of a path, a program of a filter, or a limit."""
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
