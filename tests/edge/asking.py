"""Starts `holdfast` from a shell, as `nursery.start` does from a test: the fork gets the streams of this process, and
this process ends as the fork does.

    python -I -S asking.py WORD...      NURSERY: the number of a descriptor, the door of the nursery

A stream that the shell closed is closed for the fork too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress


def main() -> None:
    """Ask, and wait for the end."""
    environ = {name: value for name, value in os.environ.items() if name != "NURSERY"}
    streams = []
    for own in range(3):
        with suppress(OSError):
            os.fstat(own)
            streams.append(own)
    request = {"words": sys.argv[1:], "cwd": os.getcwd(), "environ": environ, "streams": streams}  # noqa: PTH109
    ours, theirs = socket.socketpair()
    with socket.socket(fileno=int(os.environ["NURSERY"])) as door, theirs:
        socket.send_fds(door, [json.dumps(request).encode()], [*streams, theirs.fileno()])
    with ours.makefile() as told:
        code = int(told.read().split()[1])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
