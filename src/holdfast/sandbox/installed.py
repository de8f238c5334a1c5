"""From where programs outside the sandbox come, such as Holdfast itself and the proxy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

OURS = tuple(
    dict.fromkeys(
        (
            sys.prefix,
            sys.exec_prefix,
            sys.base_prefix,
            sys.base_exec_prefix,
            str(Path(os.__file__).parent),
            str(Path(sys.executable).absolute().parent),
            str(Path(sys.executable).resolve().parent),
            str(Path(__file__).parents[1]),
        )
    )
)
"""These folders may lie in the workspace. A virtual environment takes its library from another Python."""
