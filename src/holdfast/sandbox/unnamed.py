"""Files without a name, which pass arguments and results between processes and leave no trace on a disk."""

from __future__ import annotations

import os
import tempfile
from typing import IO


def unnamed_file() -> IO[bytes]:
    """Return a file for this process and its children: in memory, if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("holdfast"), "w+b")
    return tempfile.TemporaryFile()
