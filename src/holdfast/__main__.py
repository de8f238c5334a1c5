"""`python -m holdfast` runs the command line without its installed script."""

from __future__ import annotations

from holdfast.cli.main import main

if __name__ == "__main__":
    main()
