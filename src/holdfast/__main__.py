"""`python -m holdfast` runs the command line without its installed script."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first. A tool may have put a `keyring.py` there.
    if not sys.flags.safe_path:
        del sys.path[0]
    from holdfast.cli.main import main

    main()
