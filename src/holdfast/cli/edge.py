"""Turns an error into a sentence, a next command and an exit code, never into a traceback.

`root` catches the errors. The details of a bug go to a log in the home.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from holdfast.cli.called import home_flag
from holdfast.cli.terminal import mute, say_json, tell
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.paths import find_home
from holdfast.errors import HoldfastError, StorageError, UsageError
from holdfast.opening import by
from holdfast.redact import Redactor, ever_known
from holdfast.redact.known import named_secrets
from holdfast.views.lines import iso

LOG_FILE = "errors.jsonl"
_STORED = "holdfast.access.stored"
"""Only a bug needs it: `--help` does not load the storage."""
_JSON_FLAGS = ("--json", "--stream-json")
_JSON_CODES = (2, 8, 9)
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")
_NO_COMMAND = re.compile(r"There is no command|No such command")
_PLAIN = {
    "Value error, ": "",
    "Input should be greater than or equal to": "it must be at least",
    "Input should be less than or equal to": "it must be at most",
}
"""The words of the parser that are not for people."""
_DEBUG = "HOLDFAST_DEBUG"


def _end(
    arguments: Sequence[str], message: str, hint: str, code: str, exit_code: int, **more: bool | None
) -> int:
    """Write the error to stderr, with --json also to stdout. Return the exit code."""
    tell(f"holdfast: {message}")
    if hint:
        tell(f"  {hint}")
    if exit_code in _JSON_CODES and any(flag in arguments for flag in _JSON_FLAGS):
        try:
            say_json({"error": {"code": code, "message": message, "hint": hint, **more}})
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError:  # stdout is full or closed, and stderr has said it
            mute(sys.stdout)
    return exit_code


def tell_error(arguments: Sequence[str], error: HoldfastError) -> int:
    """Report an expected error."""
    more = {"accepted": error.accepted} if isinstance(error, StorageError) else {}
    return _end(arguments, error.message, error.hint, error.code, error.exit_code, **more)


def tell_usage(arguments: Sequence[str], message: str, command: str) -> int:
    """Report a wrong command line."""
    for said, meant in _PLAIN.items():
        message = message.replace(said, meant)
    if match := _EXTRA.fullmatch(message):
        message = f"Unexpected argument: {match[1]}. Put a text with spaces in quotes."
    what = "the commands" if _NO_COMMAND.match(message) else "its options"
    return _end(arguments, message, f"`{command} --help` lists {what}.", "usage", 2)


def folder_lost(error: OSError) -> UsageError | None:
    """Return the error of a command whose current folder was removed; None for any other error."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        try:
            Path.cwd()
        except FileNotFoundError:
            return UsageError("The current folder no longer exists.", hint="Change to another one with cd.")
    return None


def tell_bug(arguments: Sequence[str], error: Exception) -> int:
    """Report a bug with a trace id. The log has the details."""
    trace_id = secrets.token_hex(16)
    details = _redactor(arguments)("".join(traceback.format_exception(error)))
    if os.environ.get(_DEBUG):
        tell(details)
        where = "the details are above"
    else:
        log = _log_path(arguments)
        is_logged = log is not None and _log(log, trace_id, details)
        where = f"the details are in {log}" if is_logged else f"{_DEBUG}=1 shows the details"
    message = f"This is a bug ({type(error).__name__}, trace {trace_id}); {where}."
    return _end(arguments, message, "Please report it with the trace id and the details.", "bug", 1)


def _redactor(arguments: Sequence[str]) -> Redactor:
    """Return what masks all that this process has ever known, and what the environment and the store have now."""
    redact = ever_known()
    redact.know(named_secrets(os.environ))
    # What cannot be read now is what this process knew, if it has read it before. The bug may be in reading it.
    with suppress(Exception):
        stored = import_module(_STORED).StoredSecrets
        stored(find_home(home_flag(arguments), os.environ).folder, os.environ, redact)
    return redact


def _log_path(arguments: Sequence[str]) -> Path | None:
    try:
        return find_home(home_flag(arguments), os.environ).folder / "log" / LOG_FILE
    except HoldfastError:  # the bug matters more than the wrong home
        return None


def _log(path: Path, trace_id: str, details: str) -> bool:
    """Append a line to the log. Return False if it cannot be written: that must not hide the bug."""
    try:
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        line = {"at": iso(SYSTEM_CLOCK.now_ms()), "event": "unexpected_error", "trace_id": trace_id}
        with open(path, "w", opener=by(os.O_WRONLY | os.O_CREAT | os.O_APPEND)) as log:
            log.write(json.dumps({**line, "details": details}) + "\n")
    except OSError:
        return False
    return True
