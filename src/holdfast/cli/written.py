"""What the line editor gets from files: the history of the prompt, and a text that was written in another editor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History as PromptHistory

from holdfast.cli.pastes import Pastes
from holdfast.cli.recall import Recall
from holdfast.config.files import TEXT_MAX_BYTES, Unreadable, read_text
from holdfast.sandbox.system import search_path
from holdfast.sandbox.work_folder import work_folder

_EDITOR = "vi"


class History(PromptHistory):
    """The history of the prompt as prompt_toolkit reads it."""

    def __init__(self, recall: Recall, pastes: Pastes) -> None:
        super().__init__()
        self._recall, self._pastes = recall, pastes

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of earlier chats, newest first."""
        return [self._pastes.lined(each.pieces) for each in reversed(self._recall.entries())]

    def store_string(self, string: str) -> None:
        """Keep a line for later chats."""
        self._recall.add(self._pastes.message(string))


def edited_elsewhere(text: str, workspace: str, home: str) -> str | None:
    """Let the person edit a text in the editor that VISUAL or EDITOR names. None if the editor failed.

    One that lies in the workspace does not count, unless its path is named.
    """
    with work_folder("holdfast-", [home], [workspace]) as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
        try:
            words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or _EDITOR)
            program = (
                shutil.which(words[0], path=search_path(os.environ.get("PATH", os.defpath), [workspace]))
                if words
                else None
            )
            if program is None or subprocess.run([program, *words[1:], str(file)], check=False).returncode:
                return None
            return read_text(file, TEXT_MAX_BYTES).removesuffix("\n")
        except (OSError, ValueError, Unreadable):  # ValueError: a quote is not closed
            return None
