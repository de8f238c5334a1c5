"""How a command ends badly: a sentence, the next command, an exit code, and never a traceback.

`main` catches; what is said about what it caught is decided here. Details of a bug go to a log in the home.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.called import home_flag
from holdfast.cli.terminal import say_json, tell
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.paths import find_home
from holdfast.errors import HoldfastError
from holdfast.redact import Redactor
from holdfast.redact.known import named_secrets
from holdfast.views.lines import iso

LOG_FILE = "errors.jsonl"
_JSON_FLAGS = ("--json", "--stream-json")
_JSON_CODES = (2, 9)
_DEBUG = "HOLDFAST_DEBUG"


def _end(arguments: Sequence[str], message: str, hint: str, code: str, exit_code: int) -> int:
    """Say what went wrong: on stderr for people, with --json also on stdout; returns the exit code."""
    tell(f"holdfast: {message}")
    if hint:
        tell(f"  {hint}")
    if exit_code in _JSON_CODES and any(flag in arguments for flag in _JSON_FLAGS):
        say_json({"error": {"code": code, "message": message, "hint": hint}})
        sys.stdout.flush()
    return exit_code


def tell_error(arguments: Sequence[str], error: HoldfastError) -> int:
    """Say an error of the taxonomy."""
    return _end(arguments, error.message, error.hint, error.code, error.exit_code)


def tell_usage(arguments: Sequence[str], message: str, command: str) -> int:
    """Say that a command was called wrongly."""
    return _end(arguments, message, f"`{command} --help` tells what it takes.", "usage", 2)


def tell_bug(arguments: Sequence[str], error: Exception) -> int:
    """Say that something failed that should not have, under a trace id that the log has the details to."""
    trace_id = secrets.token_hex(16)
    details = Redactor(named_secrets(os.environ))("".join(traceback.format_exception(error)))
    if os.environ.get(_DEBUG):
        tell(details)
        where = "the details stand above"
    else:
        log = _log_path(arguments)
        is_logged = log is not None and _log(log, trace_id, details)
        where = f"the details are in {log}" if is_logged else f"{_DEBUG}=1 shows the details"
    message = (
        f"Something went wrong that should not have ({type(error).__name__}, trace {trace_id}); {where}."
    )
    return _end(arguments, message, "Please report it with the trace id and the details.", "bug", 1)


def _log_path(arguments: Sequence[str]) -> Path | None:
    try:
        return find_home(home_flag(arguments), os.environ).folder / "log" / LOG_FILE
    except HoldfastError:  # there is no such home; that is not what is to be told now
        return None


def _log(path: Path, trace_id: str, details: str) -> bool:
    """Append one line; False when the home cannot be written, which must not hide the first error."""
    try:
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        line = {"at": iso(SYSTEM_CLOCK.now_ms()), "event": "unexpected_error", "trace_id": trace_id}
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as log:  # noqa: PTH123
            log.write(json.dumps({**line, "details": details}) + "\n")
    except OSError:
        return False
    return True
