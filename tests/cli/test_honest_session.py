"""A usual session of reads, edits and inspections with a shell: how often a person has to answer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

FILES = {
    "README.md": "# Shop\n\nA cart with prices.\n",
    "src/cart.py": "from src.prices import PRICES\n\n\n"
    "def total(names):\n    return sum(PRICES[name] for name in name)\n",
    "src/prices.py": "PRICES = {'tea': 3, 'milk': 2}\n",
    "tests/test_cart.py": "from src.cart import total\n\n\n"
    "def test_total():\n    assert total(['tea', 'milk']) == 5\n",
    "package.json": '{"version": "1.2.3"}\n',
    "sales.csv": "tea 1\nmilk 2\ntea 4\n",
}


def shell(command: str) -> dict[str, Any]:
    return calls("shell", command=command)


SESSION = (
    shell("pwd && ls -la"),
    shell("git status --short"),
    shell("git log --oneline -5"),
    calls("list_dir", path="."),
    calls("read_file", path="README.md"),
    shell("find . -name '*.py' -not -path './.git/*' | sort"),
    shell("wc -l src/*.py tests/*.py"),
    calls("grep", pattern="total"),
    shell('grep -rn "def total" src tests'),
    calls("read_file", path="src/cart.py"),
    shell("cat tests/test_cart.py"),
    shell("sed -n '1,5p' src/cart.py"),
    shell("head -20 src/prices.py && tail -n 5 src/cart.py"),
    shell("git diff HEAD --stat"),
    shell("git show --stat HEAD"),
    shell("git blame -L 4,5 src/cart.py"),
    calls("edit_file", path="src/cart.py", old="for name in name)", new="for name in names)"),
    shell("git diff"),
    shell("cat src/cart.py | grep -n 'total' | head -5"),
    shell("ls src tests 2>/dev/null || true"),
    shell("cd src && ls -la"),
    shell("mkdir -p docs/notes"),
    calls("write_file", path="docs/notes/plan.md", content="1. Count every name.\n"),
    shell("cat docs/notes/plan.md; wc -w docs/notes/plan.md"),
    calls("edit_file", path="README.md", old="with prices", new="with prices and a total"),
    shell("diff src/cart.py src/prices.py | head -3"),
    shell("test -f setup.cfg && cat setup.cfg || echo 'there is no setup.cfg'"),
    shell("awk '{print $1}' sales.csv | sort | uniq -c | sort -rn"),
    shell('echo "at $(git rev-parse --short HEAD)"'),
    shell("which python3; python3 --version"),
    calls("glob", pattern="**/*.py"),
    shell("stat -c '%s %n' src/cart.py && du -sh src && date +%F"),
    shell("LC_ALL=C sort sales.csv > sorted.txt && cut -d' ' -f1 sorted.txt | tr a-z A-Z"),
    shell("for file in src/*.py; do head -1 \"$file\"; done"),
)  # fmt: skip


SANDBOXED = '[sandbox]\nmode = "bubblewrap"\n[policy]\nsandboxed = "allow"\n'
NEEDS_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")


@pytest.mark.requirement("C12", "L9")
@pytest.mark.parametrize("more", ["", pytest.param(SANDBOXED, marks=NEEDS_BWRAP)], ids=["asks", "sandboxed"])
def test_an_honest_session_of_34_calls_asks_at_most_once(cli: Cli, more: str) -> None:
    assert len(SESSION) == 34
    cli.configure(more)
    prepare(cli.workspace)
    ended = cli(
        *("run", "Fix the total.", "-m", cli.model(*SESSION, says("Done.")), "--autonomy", "supervised"),
        *("--approve-by", "deny", "--max-turns", "60", "--json"),
    )
    assert ended.json["status"] == "done", ended.err
    events = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    asked = [each for each in events if each["type"] == "ApprovalRequested"]
    finished = [each["body"] for each in events if each["type"] == "ToolCallFinished"]
    assert len(asked) <= 1, [each["body"] for each in asked]
    assert len(asked) + len(finished) == 34
    assert "names" in (cli.workspace / "src" / "cart.py").read_text()


def prepare(workspace: Path) -> None:
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "The shop"]):
        subprocess.run(
            ["git", "-c", "user.name=Ann", "-c", "user.email=ann@shop.example", *words],
            cwd=workspace,
            check=True,
            timeout=60,
        )
