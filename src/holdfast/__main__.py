"""`python -m holdfast` runs the command line without its installed script."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first. A tool may have put a `keyring.py` there. Nothing but what
    # Python has loaded already is imported before this, and nothing that may be there.
    try:
        if sys.path[0] == os.getcwd():  # noqa: PTH109
            del sys.path[0]
    except OSError:  # the current folder is gone
        pass
    from holdfast.cli.main import main

    main()
