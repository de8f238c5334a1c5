"""Where no sandbox counts, nothing runs: no call, no search, no hook."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.processes import Cli, calls, says
from tests.cli.test_sandbox import trusting
from tests.sandbox.liars import BROKEN, script

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")


@pytest.mark.long
@pytest.mark.requirement("L2")
@pytest.mark.parametrize("what", ["is not there", "is a folder", "is no program", *BROKEN])
def test_with_no_backend_that_counts_nothing_runs_and_the_exit_code_is_8(cli: Cli, what: str) -> None:
    folder = cli.folder / "bin"
    folder.mkdir()
    for program in ("bash", "sh", "git", "head", "yes", "sleep", "setsid"):
        (folder / program).symlink_to(str(shutil.which(program)))
    if what == "is a folder":
        (folder / "bwrap").mkdir()
    elif what == "is no program":
        (folder / "bwrap").write_text("text")
        (folder / "bwrap").chmod(0o755)
    elif what != "is not there":
        script(folder, BROKEN[what])
    cli.environ["PATH"] = str(folder)
    hook = '[hooks.early]\non = ["run_start"]\ncommand = ["touch", "hooked"]\n'
    cli.configure(f'[sandbox]\nmode = "bubblewrap"\n{hook}')
    model = cli.model(calls("shell", command="touch a.txt"), calls("grep", pattern="x"), says("Done."))
    done = trusting(cli, folder, "run", "go", "-m", model, "--autonomy", "full")
    assert (done.code, "bwrap is not installed" in done.err) == (
        8,
        what not in BROKEN and what != "is no program",
    )
    assert [*cli.workspace.iterdir()] == []
