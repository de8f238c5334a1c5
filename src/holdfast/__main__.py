"""`python -m holdfast` runs the command line without its installed script."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    # Python looks for modules in the current folder first. A tool may have put a `keyring.py` there.
    with suppress(OSError):  # the current folder may be gone
        if sys.path[0] == str(Path.cwd()):
            del sys.path[0]
    from holdfast.cli.main import main

    main()
