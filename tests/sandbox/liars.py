"""Programs that claim to be `bwrap`, and keep nothing inside."""

from __future__ import annotations

from pathlib import Path

BROKEN = {
    "exits 0": "exit 0",
    "runs its argument": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "fails": "echo 'no namespaces here' >&2; exit 1",
    "prints garbage": "head -c 100000 /dev/urandom; exit 0",
    "prints what a probe might": 'echo \'{"bait": "", "done": [], "failed": []}\'',
    "is too old": "echo 'bwrap: Unknown option --bind-fd' >&2; exit 1",
    "ends by a signal": "kill -9 $$",
    "is frozen": "kill -STOP $$",
    "hangs": "exec sleep 300",
    "prints without end": "exec yes",
    "leaves a process": "(setsid sleep 300 &); exit 0",
}


def script(folder: Path, text: str, interpreter: str = "/bin/sh") -> Path:
    """A program that claims to be bwrap."""
    program = folder / "bwrap"
    program.write_text(f"#!{interpreter}\n{text}\n")
    program.chmod(0o755)
    return program
