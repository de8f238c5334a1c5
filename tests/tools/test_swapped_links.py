"""While links that lead out are swapped in and out, no file tool reads, lists or changes anything outside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.conftest import Bench
from tests.tools.swapping import swapping
from tests.tools.test_patch import begun

pytestmark = [
    pytest.mark.requirement("L2", "L12"),
    pytest.mark.skipif(sys.platform != "linux", reason="swaps names in one step as Linux can"),
]


def reading(number: int) -> dict[str, Any]:
    return {"path": ("box/a.txt", "note.txt", "box/sub/../a.txt", "box/sub/b.txt")[number % 4]}


def written(number: int) -> dict[str, Any]:
    path = (f"box/{number % 100}.txt", "note.txt", "box/a.txt", f"box/new/{number}/n.txt")[number % 4]
    return {"path": path, "content": f"inside {number}\n"}


def edited(number: int) -> dict[str, Any]:
    return {"path": ("box/a.txt", "note.txt", "box/sub/b.txt")[number % 3], "old": "side", "new": "side "}


def patched(number: int) -> dict[str, Any]:
    patch = begun(
        f"*** Add File: box/{number}.txt", "+inside", f"*** Delete File: {number}.txt",
        "*** Update File: box/a.txt", "@@", " inside", f"+{number}",
        *(("*** Update File: note.txt", "@@", " inside", f"+{number}") if number % 2 else ()),
    )  # fmt: skip
    return {"patch": patch}


def listed(number: int) -> dict[str, Any]:
    return {"path": ("box", ".", "box/sub", "box")[number % 4]}


def globbed(number: int) -> dict[str, Any]:
    return {"pattern": "**/*", "path": ("box", ".", "box/sub")[number % 3]}


def searched(number: int) -> dict[str, Any]:
    return {"pattern": "side", "path": ("box", ".", "note.txt", "box/a.txt", "box/sub")[number % 5]}


CALLS = {
    "read_file": reading,
    "write_file": written,
    "edit_file": edited,
    "apply_patch": patched,
    "list_dir": listed,
    "glob": globbed,
    "grep": searched,
}

FEW = {"grep": 40, "list_dir": 600}
"""How many calls are enough to hit the moment between a look and an opening, were the opening careless."""


@pytest.mark.parametrize("name", CALLS)
async def test_no_file_tool_leaves_the_workspace_while_links_are_swapped(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    await call_while_swapping(bench, tmp_path, name, FEW.get(name, 300))


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
async def test_no_file_tool_leaves_the_workspace_in_ten_thousand_calls(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    await call_while_swapping(bench, tmp_path, name, 10_000)


async def call_while_swapping(bench: Bench, tmp_path: Path, name: str, count: int) -> None:
    outside = tmp_path / "outside"
    fill(outside, "outside", "far")
    fill(bench.workspace / "box", "inside", "near")
    (tmp_path / "note.txt").write_text("outside\n")
    (bench.workspace / "note.txt").write_text("inside\n")
    before = whole(outside), whole(tmp_path / "note.txt")
    done = refused = 0
    with swapping(
        (bench.workspace / "box", outside), (bench.workspace / "note.txt", tmp_path / "note.txt")
    ) as swaps:
        for number in range(count):
            here = bench.workspace / f"{number}.txt"
            if name == "apply_patch":  # which deletes it, together with its other changes
                here.write_text("old\n")
            # Without the gates, which refuse most, and with them.
            call = bench.run if number % 2 else bench.call
            result = await call(name, **CALLS[name](number))
            assert "outside" not in result.text
            assert "far" not in result.text
            if name == "apply_patch" and result.status == "error":
                assert here.read_text() == "old\n" or "could not be put back" in result.text
            done += result.status == "ok"
            refused += result.status == "error"
    print(f"{name}: {count} calls, {done} done, {refused} refused, {swaps.count} swaps")
    assert done + refused == count
    assert done
    assert refused
    assert swaps.count > count
    assert (whole(outside), whole(tmp_path / "note.txt")) == before


def fill(folder: Path, text: str, name: str) -> None:
    (folder / "sub").mkdir(parents=True)
    for path in ("a.txt", "sub/b.txt", f"{name}.txt", f"sub/{name}.txt"):
        (folder / path).write_text(f"{text}\n")


def whole(path: Path) -> list[tuple[str, bytes, int]]:
    """All that is below a path, with what a change would leave on it."""
    return [
        (str(each), each.read_bytes() if each.is_file() else b"", each.stat().st_ctime_ns)
        for each in sorted([path, *path.rglob("*")])
    ]
