"""Makes the picture of the README: `python -m tests.house.picture` writes docs/run.svg.

The picture shows real commands: a run in a terminal, the SIGKILL that ends its process, and `resume`. The model is
the scripted one of `holdfast demo`. Ids, times and folders are replaced, so that the bytes are always the same.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from holdfast.cli import demo_story

PICTURE = Path(__file__).parents[2] / "docs" / "run.svg"
_COLUMNS, _ROWS = 100, 60
_PATIENCE_S = 60.0
_SAME = (
    (re.compile(r"01[0-9A-HJKMNP-TV-Z]{24}"), "01KA8Z3N5V7Q2W4E6R9T0Y1M3X"),
    (re.compile(r"\b\d+(?:\.\d+)?s\b"), "0.1s"),
    (
        re.compile(r"[^\n]*\r\x1b\[K"),
        "",
    ),  # a line that was erased, like the one that turns while something runs
    (
        re.compile(r"[^\n]*[\u2801-\u28ff][^\n]*\n?"),
        "",
    ),  # the same, if the process was killed before it erased it
)
"""What differs from run to run, and what the picture shows instead."""
_RUN = ["run", "The tests fail. Find out why, and fix it.", "-w", "ferry", "--autonomy", "full"]


def picture() -> str:
    """Return the picture as SVG."""
    # Lines break at the width of the real path, so its length must not depend on TMPDIR.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shown = _transcript(Path(folder))
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.from_ansi(shown))
    return console.export_svg(title="holdfast", unique_id="holdfast")


def _transcript(folder: Path) -> str:
    home = folder / "home"
    (project := folder / "ferry").mkdir()
    for name, content in demo_story.FILES.items():
        (project / name).write_text(content)
    script = folder / "model"
    script.write_text("".join(json.dumps(_alone(line)) + "\n" for line in demo_story.SCRIPT))
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'model = "script:{script}"\n{demo_story.CONFIG}')
    first = _played(folder, home, _RUN, killed_at=project / demo_story.MARKER)
    second = _played(folder, home, ["resume", "last"])
    prompt = "\x1b[1;32m$\x1b[0m "
    lines = [
        f'{prompt}holdfast run "{_RUN[1]}" -w ferry --autonomy full',
        first,
        "\x1b[1;31mKilled\x1b[0m  (kill -9, while a command ran)",
        "",
        f"{prompt}holdfast resume last",
        second,
    ]
    shown = "\n".join(lines).replace(str(script), "demo").replace(str(folder), "~")
    for pattern, same in _SAME:
        shown = pattern.sub(same, shown)
    return shown


def _alone(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response with one call at most: of two, either may end first."""
    return {**line, "delay_s": 0, "tool_calls": line["tool_calls"][-1:]}


def _played(folder: Path, home: Path, words: list[str], killed_at: Path | None = None) -> str:
    """Run a command in a terminal of its own, kill it when the file is there, and return what it wrote."""
    leader, follower = pty.openpty()
    environ = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm-256color",
        "HOLDFAST_HOME": str(home), "COLUMNS": str(_COLUMNS), "LINES": str(_ROWS), "LANG": "C.UTF-8",
    }  # fmt: skip
    command = [sys.executable, "-m", "holdfast", *words]
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        written = b""
        os.set_blocking(leader, False)
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            is_over = process.poll() is not None
            try:
                written += os.read(leader, 65_536)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # the other side is closed
                break
            if (
                killed_at is not None
                and killed_at.exists()
                and "long check" in written.decode(errors="replace")
            ):
                process.send_signal(signal.SIGKILL)
                killed_at = None
            if is_over and not written:
                break
        process.wait(timeout=_PATIENCE_S)
    os.close(leader)
    return written.decode(errors="replace").replace("\r\n", "\n").rstrip("\n")


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture())
    print(f"Wrote {PICTURE}")


if __name__ == "__main__":
    main()
