"""The first program of a call that may reach something, inside its sandbox: opens a socket that leads to the proxy,
and becomes the program of the call.

    python -I -S -c SOURCE DOOR PORT PROGRAM ARGUMENT...

The socket listens in the network of the sandbox, which has nothing but itself. The proxy, outside, gets the socket
through DOOR, an open file, and accepts what comes. No process stays between them.
"""

import os
import sys
from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]
from _socket import SCM_RIGHTS, SOL_SOCKET, socket


def main() -> None:
    """Make the way, and become the program."""
    listener, outside = socket(), socket(fileno=int(sys.argv[1]))
    listener.bind(("127.0.0.1", int(sys.argv[2])))
    listener.listen(128)
    given = listener.fileno().to_bytes(4, sys.byteorder)
    try:
        outside.sendmsg([b"+"], [(SOL_SOCKET, SCM_RIGHTS, given)])
    except OSError:
        pass  # the proxy is gone: each connection of the program fails
    outside.close()
    listener.close()
    for ignored in (SIGPIPE, SIGXFSZ):  # Python ignores them, and a program keeps what is ignored
        signal(ignored, SIG_DFL)
    try:
        os.execvp(sys.argv[3], sys.argv[3:])
    except OSError as error:
        sys.exit(f"{sys.argv[3]}: {error.strerror}")


if __name__ == "__main__":
    main()
