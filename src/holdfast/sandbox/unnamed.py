"""Files without a name, for what one process hands to another: arguments and answers leave no trace on a disk."""

from __future__ import annotations

import os
import tempfile
from typing import IO


def unnamed_file() -> IO[bytes]:
    """A file for this process and those that it starts: in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("holdfast"), "w+b")
    return tempfile.TemporaryFile()
