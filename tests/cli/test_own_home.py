"""A home inside the workspace, as with `--home .hf` or `cd ~`: the agent cannot overwrite its own journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Cli, calls, says


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("autonomy", ["supervised", "full"])
def test_an_agent_cannot_destroy_its_journal_or_loosen_its_settings(tmp_path: Path, autonomy: str) -> None:
    cli = Cli(tmp_path)
    cli.home = cli.workspace / ".hf"
    cli.configure("[repeat]\nnote = 9\nstop = 10\n")
    settings = (cli.home / "config.toml").read_text()
    assert cli("run", "first", "-m", cli.model(says("One."), name="first")).code == 0
    attacks = (
        calls("write_file", path=".hf/holdfast.db", content="gone"),
        calls("write_file", path=".hf/config.toml", content='autonomy = "full"'),
        calls("edit_file", path=".hf/config.toml", old="9", new="8"),
        calls("read_file", path=".hf/config.toml"),
        calls("shell", command="rm -rf .hf"),
        calls("shell", command="echo gone > .hf/holdfast.db"),
    )
    model = cli.model(*attacks, says("Well then."))
    ended = cli("run", "second", "-m", model, "--autonomy", autonomy, "--json")
    assert (ended.code, ended.json["text"], ended.json["tool_calls"]) == (0, "Well then.", 0)
    assert (cli.home / "config.toml").read_text() == settings
    assert len(cli("sessions", "--json").out.splitlines()) == 2
    assert cli("fsck").code == 0
