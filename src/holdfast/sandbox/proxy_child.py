"""The proxy of one runtime, as a program: takes requests out of sandboxes to the hosts that each call may reach.

    python -I -S proxy_child.py FOLDER... < socket      FOLDER...: where Holdfast and what it needs are

It imports from nowhere else: the search path of its parent may hold the workspace, in which a command can write.

Its standard input is the socket over which the driver passes calls. If the driver is gone, the proxy ends.
`proxy_calls` serves the calls, `proxy` starts this program, and `process` ends it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys

MAX_FILES = 16_384
"""The most open files. `proxy_calls` says what they are for."""


def main() -> None:
    """Serve calls until the driver is gone."""
    sys.path += sys.argv[1:]
    from holdfast.sandbox.cores import leave_no_core
    from holdfast.sandbox.proxy_calls import serve

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    leave_no_core()
    asyncio.run(_serve_and_leave(serve, most))


async def _serve_and_leave(serve: object, most: int) -> None:
    await serve(socket.socket(fileno=0), most)  # type: ignore[operator]
    os._exit(0)  # a thread may still wait for the address of a name


if __name__ == "__main__":
    main()
