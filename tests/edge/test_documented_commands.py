"""Every `holdfast` command that README and docs show is run, page by page, against a model server on loopback."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.model_server import ModelServer, Reply
from tests.edge.machine import Finished, Machine, call

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = frozenset({"||", "&&", "|", ">", "<", ";"})
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if re.search(r"^holdfast ", "".join(_BLOCK.findall(page.read_text())), re.MULTILINE)
]
ANSWER = '[{"title": "It adds wrongly"}]'
OTHER_CODES = {
    "holdfast --install-completion": {0, 1, 2},  # it depends on the shell of who runs the tests
    "holdfast trust": {2},  # nobody is there to be asked
    "holdfast secret set GITHUB_TOKEN": {2},
    "holdfast secret remove GITHUB_TOKEN": {2},
    "holdfast delete SESSION": {2},
    "holdfast replay SESSION --with other.toml": {0, 1},
}
"""The exit codes of commands that do not end with 0 here."""
FILES = {
    "bugs.schema.json": '{"type": "array"}',
    "answer.txt": "Done.\n",
    "answers.jsonl": '{"text": "Done."}\n',
    "tools.json": '[{"name": "look"}]',
    "calls.jsonl": '{"command": "ls"}\n',
    "other.toml": "[limits]\nturns = 7\n",
    "holdfast.toml": 'autonomy = "full"\n',
    "log.txt": "It broke.\n",
    "report.pdf": "%PDF-1.7\n%%EOF\n",
    "texts.jsonl": '{"text": "plain"}\n',
    "screen.png": "\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + "\0" * 17 + "\0\0\0\0IEND",
}


def commands(page: Path) -> Iterator[str]:
    """Yield the `holdfast` commands of a page, without comments and what follows in the shell."""
    for block in _BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["holdfast"]:
                end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
                yield shlex.join(words[:end])


class Shown:
    """Runs documented commands, with the names of sessions and approvals that are there in place of the documented
    ones.
    """

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine = machine
        self.environ = {
            "HOME": str(machine.folder),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none-" + "needed",
        }
        (machine.folder / "project").mkdir()
        for name, text in FILES.items():
            (machine.workspace / name).write_bytes(text.encode("latin-1"))
        machine.configure('model = "openai:gpt-5.5"\n').chmod(0o600)
        looks = machine.script([*[{"tool_calls": [call("list_dir")]}] * 3, {"text": "Done."}], "looks")
        asks = machine.script(
            [{"tool_calls": [call("shell", command="kill -0 0")]}, {"text": "Done."}], "asks"
        )
        self.run("run", "Look around.", "-s", "cli:seen", "-m", looks)
        for _ in range(3):
            self.run("run", "Wait for me.", "-m", asks, "--approve-by", "wait")
        self.newest = self.rows("sessions")[0]["session"]

    def run(self, *words: str) -> Finished:
        return self.machine.holdfast(*words, **self.environ)

    def rows(self, *words: str) -> list[dict[str, str]]:
        return self.run(*words, "--json").rows

    def follow(self, shown: str) -> Finished:
        """Run one command."""
        words = shlex.split(shown)[1:]
        named = {
            "SESSION": "cli:seen",
            "SEQ": "6",
            "~/project": str(self.machine.folder / "project"),
            "DIR": str(self.machine.folder / "copied"),
        }
        if "ID" in words:
            lists = {"approve": "approvals", "deny": "approvals", "grants": "grants"}
            named["ID"] = self.rows(lists[words[0]])[0]["id"] if words[0] in lists else self.newest
        if "NEW" in words:
            named["NEW"] = self.rows("sessions")[0]["session"]
        return self.run(*(named.get(word, word) for word in words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_commands_of_a_page_do_what_they_show(page: Path, machine: Machine) -> None:
    async with ModelServer([Reply(text=ANSWER, repeat=True)]) as server:
        shown = await asyncio.to_thread(Shown, machine, server.openai_url)
        for command in commands(page):
            answer = await asyncio.to_thread(shown.follow, command)
            allowed = OTHER_CODES.get(command, {0})
            assert answer.code in allowed, (
                f"{command}: {answer.code}\n{answer.out[-800:]}\n{answer.err[-800:]}"
            )


def test_the_pages_with_commands_are_found() -> None:
    assert {page.stem for page in PAGES} >= {"README", "running", "looking", "configuration"}
    found = [command for page in PAGES for command in commands(page)]
    assert "holdfast resume last" in found
    assert "holdfast run ... --posture overnight --budget 5 --timeout 8h" in found
    assert set(OTHER_CODES) <= set(found)
