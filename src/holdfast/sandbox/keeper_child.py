"""The keeper of one driver, as a program.

    python -I -S keeper_child.py FOLDER DRIVER_PID     FOLDER: where Holdfast is

Its standard input is the socket over which the driver passes calls. It imports from FOLDER last, so that nothing
there takes the place of the standard library, and needs nothing else.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Keep the calls of the driver."""
    sys.path.append(sys.argv[1])
    from holdfast.sandbox.keeper import keep

    keep(int(sys.argv[2]))


if __name__ == "__main__":
    main()
