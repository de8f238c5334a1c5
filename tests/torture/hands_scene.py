"""A session whose calls meet hooks, patches, grants and people who decide later, from one seed.

Every effect has a mark: a line in `effects.log`, files with the mark in their names, a line in the ledger.
`apply_patch` has several of them at once. What the hook shall do is a word of the arguments: `guard-deny` and so on.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.testing.model_replies import Rendered, Reply, ReplyCall
from holdfast.testing.model_server import Received
from tests.torture.evidence import EFFECTS, HOOKS, LEDGER, is_aside
from tests.torture.scene import END, EPILOGUE, Said, Scene, SceneServer, scene

TOLD = ("after_tool", "after_model", "turn_end", "run_end", "approval")
WORDS = (
    *("deny", "ask", "change", "fork", "deaf", "flood", "loud", "die", "slow"),
    *("none",) * 9,
)
PAGES = 6
_KINDS = (
    "patch",
    "patch",
    "patch",
    "shell",
    "shell",
    "write",
    "extra",
    "same",
    "several",
    "read",
    "fetch",
    "git",
)
_DEFERRED = re.compile(r"Asked; work on something else.*?\(approval (\d+)\)")
_APPROVED = re.compile(r"Approved: your call of \w+ \(approval (\d+)\)")


@dataclass(frozen=True)
class HandsScene(Scene):
    """What one seed makes of it."""

    is_deferred: bool = False
    most_actions: int = 600
    is_hooked: bool = True
    fetches: bool = False
    grants_last: str = "12h"

    @property
    def grants(self) -> bool:
        """As `Scene.grants`."""
        return True

    @property
    def flags(self) -> tuple[str, ...]:
        """What the first command says beside the task."""
        decides = ("--approve-by", "defer") if self.is_deferred else ()
        return ("-m", self.model, "--autonomy", self.autonomy, "--max-turns", "100", *decides)

    @property
    def config(self) -> str:
        """The user file. PORT is the one of the server."""
        words = '["python3", "-I", "-S", "../hooks/hands_hook.py"]'
        hooks = (
            f'[hooks.guard]\non = ["before_tool"]\ncommand = {words}\ntimeout_s = 2\n'
            f'[hooks.before]\non = ["run_start", "before_model"]\ncommand = {words}\non_failure = "allow"\n'
            f"[hooks.log]\non = {json.dumps(TOLD)}\ncommand = {words}\n"
        )
        return (
            f'{super().config}[policy]\nactions_per_hour = {self.most_actions}\ngrants_last = "{self.grants_last}"\n'
            f'[tools]\nunknown_arguments = "strip"\n[network]\nallow = ["127.0.0.1:PORT"]\n'
            f"{hooks if self.is_hooked else ''}"
        )

    def furnish(self, folder: Path) -> None:
        """What lies in the workspace at first, and beside it."""
        super().furnish(folder)
        (folder / HOOKS).mkdir()
        shutil.copy(Path(__file__).with_name("hands_hook.py"), folder / HOOKS)
        tool = folder / HOOKS / "once"
        tool.write_text(
            f'#!/bin/sh\necho "$1 begun" >> {EFFECTS}; sleep 0.05; echo "$1 ended" >> {EFFECTS}\n'
        )
        tool.chmod(0o755)


def hands_scene(seed: int) -> HandsScene:
    """The scene of a seed."""
    plain, chance = scene(seed), random.Random(f"hands {seed}")
    fields = {name: getattr(plain, name) for name in Scene.__dataclass_fields__}
    fields |= {"budget": "", "max_turns": 0, "autonomy": chance.choice(("full", "supervised", "supervised"))}
    return HandsScene(
        **{**fields, "turns": chance.randint(4, 8), "parks": False},
        is_deferred=chance.random() < 0.5,
        most_actions=chance.choice((600, 600, 4)),
        is_hooked=chance.random() < 0.85,
        fetches=chance.random() < 0.4,
        grants_last=chance.choice(("12h", "1m")),
    )


def hands_said(scene: HandsScene, number: int, body: bytes, port: int) -> Said:
    """The answer of that number to a request."""
    if is_aside(body):
        return Said(f"It goes on, says answer {number}.")
    request = json.loads(body)
    if not request.get("tools"):
        return Said(f"I stop here, says answer {number}.")
    if again := _approved(request["messages"]):
        calls = tuple(ReplyCall(name, given) for name, given in again)
        return Said(f"Answer {number}: again.", calls, tuple(_marked(given) for _, given in again))
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    if EPILOGUE in json.dumps(request["messages"][-1]) or turn >= scene.turns:
        return Said(f"All is done, says answer {number}.")
    chance = random.Random(f"hands turn {scene.seed} {turn}")
    kinds = [chance.choice(_KINDS)]
    if kinds[0] == "several":
        kinds = ["patch", "write", "shell", "read", "same"]
    if scene.asks and chance.random() < 0.3:
        kinds.insert(chance.randint(0, 1), "ask")
    calls, marks = [], []
    for index, kind in enumerate(kinds):
        if kind == "fetch" and not scene.fetches:
            kind = "patch"
        mark = f"r{number}c{index}"
        call = _call(kind, mark, chance, f"guard-{chance.choice(WORDS)}", port)
        calls.append(call)
        marks.append(_marked(call.arguments))
    return Said(f"Answer {number} for turn {turn}. " + "I work. " * 20, tuple(calls), tuple(marks))


def _marked(given: Any) -> tuple[str, str]:
    found = re.search(r"r\d+c\d+", json.dumps(given))
    return (found[0] if found else "", "")


def _call(kind: str, mark: str, chance: random.Random, word: str, port: int) -> ReplyCall:
    pause = chance.choice((0, 0.02, 0.1))
    command = f"echo {mark} begun >> {EFFECTS}; sleep {pause}; : {word}; echo {mark} ended >> {EFFECTS}"
    match kind:
        case "patch":
            lines = [
                "*** Begin Patch",
                *(f"*** Add File: made/{mark}{part}.txt\n+{word} of {mark}" for part in "ab"),
                f"*** Update File: {LEDGER}",
                f"@@\n+- edited by {mark}\n {END.strip()}",
                f"*** Add File: made/deep{mark}/sub/{mark}c.txt\n+{word} of {mark}",
                "*** End Patch",
            ]
            return ReplyCall("apply_patch", {"patch": "\n".join(lines)})
        case "shell":  # a person is asked about the second one
            return ReplyCall("shell", {"command": chance.choice((command, f"../{HOOKS}/once {mark} {word}"))})
        case "extra":
            return ReplyCall("shell", {"command": command, "why": "It helps.", "sudo": False})
        case "background":  # ends with the run, whatever becomes of its driver
            command = f"echo {mark} begun >> {EFFECTS}; : {word}; (setsid sleep 300 &); sleep 300"
            return ReplyCall("shell", {"command": command, "background": True})
        case "write":
            return ReplyCall("write_file", {"path": f"made/{mark}w.txt", "content": f"{word} of {mark}\n"})
        case "same":  # may be granted
            return ReplyCall("shell", {"command": f"../{HOOKS}/once same{chance.randint(0, 1)}"})
        case "ask":
            return ReplyCall("ask_user", {"question": f"What about {mark}?", "options": ["this", "that"]})
        case "fetch":
            return ReplyCall("web_fetch", {"url": f"http://127.0.0.1:{port}/page/{mark}"})
        case "list":
            return ReplyCall("list_dir", {"path": "made"})
        case _:
            return ReplyCall("read_file", {"path": LEDGER})


def _approved(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that people approved since they were put aside, and that were not made again."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    by_number: dict[str, tuple[str, dict[str, Any]]] = {}
    due: list[tuple[str, dict[str, Any]]] = []
    for message in messages:
        texts: list[tuple[str, str]] = []
        for call in message.get("tool_calls") or ():
            asked[call["id"]] = (call["function"]["name"], json.loads(call["function"]["arguments"]))
        if message["role"] == "tool":
            texts.append((message["tool_call_id"], message["content"]))
        elif isinstance(message["content"], str):
            texts.append(("", message["content"]))
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                asked[block["id"]] = (block["name"], block["input"])
            elif block["type"] == "tool_result":
                texts.append((block["tool_use_id"], json.dumps(block["content"])))
            elif block["type"] == "text":
                texts.append(("", block["text"]))
        if message["role"] == "assistant":
            due.clear()  # this answer had its chance
            continue
        for ref, text in texts:
            if ref and (found := _DEFERRED.search(text)):
                by_number[found[1]] = asked[ref]
            elif not ref:
                due += [by_number[number] for number in _APPROVED.findall(text) if number in by_number]
    return due


class HandsServer(SceneServer):
    """The server of such a scene; it has pages to read too."""

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        """As `SceneServer.answer`."""
        if not request.path.startswith("/page"):
            return super().answer(request)
        text = f"A page for {request.path}. " * 400
        reply = Reply(text=text, chunk_bytes=500, pause_s=0.01)
        return reply, Rendered(200, "text/plain", text.encode())

    def said(self, number: int, body: bytes) -> Said:
        """As `SceneServer.said`."""
        assert isinstance(self.scene, HandsScene)
        return hands_said(self.scene, number, body, int(self.url.rpartition(":")[2]))
