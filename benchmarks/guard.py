"""What the guard costs: a survey of a workspace beside the stat of its files, evidence of a result beside its hash.

CPU time, the best of several rounds, each beside a floor of its own. `python -m benchmarks guard` prints the table.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.core.evidence import evidence_of
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.background import Background
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces
from holdfast.tools.sameness import likeness_of
from holdfast.tools.shell import Shell
from holdfast.tools.survey import Surveyor

ROUNDS = 7
FOLDERS, FILES_EACH = 200, 100
CHANGED = 500
"""How many files have changed since the session began, and count with their content."""

Row = dict[str, float | str]


def best_us(work: Callable[[], object], times: int = 1) -> float:
    """CPU microseconds of one call, in the best round."""

    def once() -> float:
        began = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - began) * 1e6 / times

    work()
    return min(once() for _ in range(ROUNDS))


def make_files(folder: Path) -> None:
    """Make a workspace of 20,000 files."""
    for number in range(FOLDERS):
        below = folder / f"folder{number}"
        below.mkdir()
        for each in range(FILES_EACH):
            (below / f"file{each}.py").write_bytes(b"x" * 500)


def stat_all(folder: str) -> int:
    """The floor of a survey: a stat of each file."""
    count, folders = 0, [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    count += entry.stat(follow_symlinks=False).st_size > 0
    return count


def surveys(folder: Path) -> Iterator[Row]:
    """Surveys of 20,000 files: none of them changed since the session began, some of them, and again."""
    make_files(folder)
    place, now_ms = str(folder), int(time.time() * 1000)
    floor = best_us(lambda: stat_all(place))
    surveyor = Surveyor(OwnPlaces())
    unchanged = best_us(lambda: surveyor.survey(place, now_ms + 60_000, ()))
    for number in range(CHANGED):
        path = folder / f"folder{number % FOLDERS}" / f"file{number // FOLDERS}.py"
        path.write_bytes(b"y" * 2_000)
    # The session began so that exactly the files written just now count as changed.
    first = best_us(lambda: Surveyor(OwnPlaces()).survey(place, now_ms + 2_000, ()))
    again = best_us(lambda: surveyor.survey(place, now_ms + 2_000, ()))
    for what, cost in (
        ("nothing changed", unchanged),
        (f"{CHANGED} read", first),
        (f"{CHANGED} known", again),
    ):
        yield {"what": f"survey: {what}", "cpu_us": cost, "floor_us": floor, "x_floor": cost / floor}


def texts() -> dict[str, str]:
    """Ordinary results."""
    log = "2026-03-04T10:11:{:02}.123Z INFO worker[{}]: GET /v1/items/{} took {} ms\n"
    return {
        "500 characters": "x" * 500,
        "2 KB of code": Path(__file__).read_text("utf-8")[:2_000],
        "2 KB of log": "".join(log.format(n % 60, n * 7, n, n * 3) for n in range(40))[:2_000],
        "24 KB of log": "".join(log.format(n % 60, n * 7, n, n * 3) for n in range(500))[:24_000],
    }


def evidences() -> Iterator[Row]:
    """Evidence of results, beside the hash of their text, which the guard against repeats makes anyway."""
    for name, text in texts().items():
        floor = best_us(lambda text=text: hashlib.sha256(text.encode()).hexdigest(), 500)  # type: ignore[misc]
        cost = best_us(
            lambda text=text: evidence_of(text, "ok", is_negative=False, ran=True, arguments="{}"),  # type: ignore[misc]
            500,
        )
        yield {"what": f"evidence: {name}", "cpu_us": cost, "floor_us": floor, "x_floor": cost / floor}


def likenesses() -> Iterator[Row]:
    """Likenesses of calls, beside the hash of their arguments."""
    shell = Shell(Background(), Fences(OwnPlaces(), "/")).spec
    plain = ToolSpec("plain", "", {})
    commands = {"a command": "pytest -q tests # again", "a search": "grep -rn name src | head -20"}
    cases = [(name, shell, {"command": command}) for name, command in commands.items()]
    for name, spec, values in [*cases, ("a function", plain, {"n": 1})]:
        floor = best_us(lambda values=values: hashlib.sha256(json.dumps(values).encode()).hexdigest(), 500)  # type: ignore[misc]
        cost = best_us(lambda spec=spec, values=values: likeness_of(spec, values, "/tmp"), 500)  # type: ignore[misc]
        yield {"what": f"likeness: {name}", "cpu_us": cost, "floor_us": floor, "x_floor": cost / floor}


def measured() -> Iterator[Row]:
    """All rows."""
    with tempfile.TemporaryDirectory() as folder:
        yield from surveys(Path(folder))
    yield from evidences()
    yield from likenesses()
