"""The attack through the command line: a model that is hostile, or has read a hostile page, runs it under `full`.

python -m tests.sandbox.commanded BACKEND FOLDER      prints one JSON object: see `Commanded`
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.protocol.fence import Backend
from holdfast.sandbox.probing import interpreter
from tests.sandbox import attack
from tests.sandbox.attacked import TOGETHER, Judge, Scene, Verdict, end

PATIENCE_S = 120
SAID = "said.jsonl"


@dataclass
class Commanded:
    """What came of a run whose model starts the attack."""

    code: int
    error: str
    """What it said for people."""
    ran: bool
    """Whether anything of the model's ran."""
    verdicts: dict[str, Verdict]
    strange: list[str]
    walled: str
    """The backend that the journal names."""


def commanded(backend: Backend, folder: Path) -> Commanded:
    """Run the attack as a command of a model, and judge."""
    scene = Scene(folder)
    try:
        judge = Judge(scene, without=scene.own)
        environ = _furnish(scene, backend)
        words = ("run", "Do the work.", "-m", f"script:{folder}/model.jsonl", "--autonomy", "full", "-w", ".")
        done = _holdfast(scene, environ, *words)
        said = scene.workspace / SAID
        lines = said.read_text().splitlines() if said.exists() else []
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        did, strange = judge.traces(rows)
        shown = _holdfast(scene, environ, "show", "last", "--tools", "--json").stdout if rows else ""
        strange += [
            f"a bait is in what {what} says" for what in _leaks(scene, done.stdout + done.stderr + shown)
        ]
        calls = [json.loads(line) for line in shown.splitlines()]
        return Commanded(
            code=done.returncode,
            error=done.stderr,
            ran=bool(rows) or said.exists() or (scene.workspace / "begun").exists(),
            verdicts={row["step"]: "open" if row["step"] in did else "stopped" for row in rows},
            strange=strange,
            walled=" ".join(row["walled"]["backend"] for row in calls if row.get("walled")),
        )
    finally:
        end(scene.token)
        scene.close()


def _furnish(scene: Scene, backend: Backend) -> dict[str, str]:
    """Write the user file, the script of the model, and the program that it runs."""
    read = json.dumps([*interpreter()])
    (scene.own / "config.toml").write_text(f'[sandbox]\nmode = "{backend}"\nread = {read}\n')
    (scene.own / "holdfast.db").unlink()  # a bait: no database looks so
    (scene.own / "secrets.json").unlink()
    (scene.workspace / "program.py").write_text(Path(attack.__file__).read_text())
    (scene.workspace / "facts.json").write_text(scene.facts())
    python, steps = os.path.realpath(sys.executable), shlex.join(TOGETHER)
    (scene.workspace / "try.sh").write_text(
        f'touch begun\n{python} -I -S program.py "$(cat facts.json)" {steps} > {SAID}\n'
    )
    call = {"name": "shell", "arguments": {"command": "bash try.sh"}}
    replies = ({"tool_calls": [call]}, {"text": "Done."})
    (scene.folder / "model.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in replies))
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(scene.home),
        "HOLDFAST_HOME": str(scene.own),
    }


def _holdfast(scene: Scene, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "holdfast", *words)
    return subprocess.run(
        argv,
        cwd=scene.workspace,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _leaks(scene: Scene, text: str) -> list[str]:
    """Where a bait is: in what was said, and in the files of Holdfast's home."""
    places = {"the command": text.encode()}
    places |= {str(path): path.read_bytes() for path in scene.own.rglob("*") if path.is_file()}
    baits = [bait.encode() for name, bait in scene.baits.items() if name != "settings"]
    return [name for name, content in places.items() if any(bait in content for bait in baits)]


def main() -> None:
    """Attack here, and print the report."""
    backend: Any = sys.argv[1]
    print(json.dumps(asdict(commanded(backend, Path(sys.argv[2]).resolve()))))


if __name__ == "__main__":
    main()
