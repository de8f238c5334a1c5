"""A program that tries to outlive its call: no environment, forked twice, a session of its own, deaf to TERM.

python escaping.py PIDS     adds the pid of the process that would stay behind to a file, and is itself done
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    parent_waits, parent_goes_on = os.pipe()
    if os.fork():
        os.close(parent_goes_on)
        os.read(parent_waits, 1)
        sys.exit()
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(pids, b"%d\n" % os.getpid())
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.execve("/bin/sleep", ["sleep", "300"], {})
