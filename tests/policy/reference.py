"""The workspace of the reference policy, and the gates of a run in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.app import open_checker
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.protocol.tools import Decision
from holdfast.tools.checking import Checker

HOSTS = ["api.github.com", "packages.example.net", "docs.example.com", "*.files.example.net"]
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


class Reference:
    """A workspace `/ws` with a sibling `/ws2` and a home `/home/agent`, below a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkers: dict[str, Checker] = {}
        self.workspace, self.home = folder / "ws", folder / "home" / "agent"
        for name in ("ws/src", "ws/sub", "ws/logs", "ws/..data", "ws/.git/hooks", "ws2", "home/agent/.ssh"):
            (folder / name).mkdir(parents=True)
        for name in (
            "README.md",
            "a.txt",
            "notes.md",
            "list.txt",
            "big.txt",
            ".env",
            "..data/x",
            ".git/config",
        ):
            (self.workspace / name).write_text("words\n")
        (self.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (self.workspace / "link_out").symlink_to("/etc")
        (self.workspace / "link_ssh").symlink_to(self.home / ".ssh")
        (folder / "ws2" / "a.txt").write_text("words\n")
        (self.home / ".ssh" / "id_rsa").write_text("words\n")

    def text(self, written: str) -> str:
        """The text with the places of the test instead of those that the policy writes."""
        for short in ("/ws2", "/ws", "/home/agent"):
            written = re.sub(rf"(?<![\w.]){short}/", f"{self.folder}{short}/", written)
        return written

    def checker(self, autonomy: str, more: Mapping[str, Any] | None = None) -> Checker:
        if not more and autonomy in self._checkers:
            return self._checkers[autonomy]
        config = load_only({"autonomy": autonomy, "network": {"allow": HOSTS}, **(more or {})})
        own = self.folder / "holdfast"
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        checker = open_checker(config, Home(own, own / "config.toml"), self.workspace, environ)
        if not more:
            self._checkers[autonomy] = checker
        return checker

    async def verdict(self, kind: str, written: str, autonomy: str = "supervised") -> Decision:
        return await self.checker(autonomy).subject(kind, self.text(written))

    async def call(
        self, tool: str, arguments: Mapping[str, Any], autonomy: str = "supervised", **more: Any
    ) -> Decision:
        return await self.checker(autonomy, more).call(tool, arguments)
