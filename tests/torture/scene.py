"""What the model of a tortured session says and how its server behaves, all from one seed.

Every answer has a number, and every call in it a mark made of that: two answers to the same request ask for different
calls, so that an effect tells which answer it came from.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.protocol.messages import Usage
from holdfast.testing.model_replies import Format, Rendered, Reply, ReplyCall, render
from holdfast.testing.model_server import ModelServer, Received
from tests.torture.effects import heard
from tests.torture.evidence import EFFECTS, LEDGER, OPEN_FILES, Call, Served, is_aside

Kind = Literal[
    "text", "write", "edit", "change", "shell", "read", "several", "two shells", "ask", "list", "long"
]
EPILOGUE = "That was all: say so."
PRICE = (1, 4)
"""Micro-dollars for a token of input and of output."""
END = "- end\n"
LONG = "seq 1 15000"
"""Prints so much that the model reads only a part of it: the whole becomes a blob, and is redacted in a thread."""

_KINDS: tuple[Kind, ...] = (
    "write",
    "edit",
    "change",
    "shell",
    "read",
    "several",
    "two shells",
    "list",
    "long",
)
_FAULTS: tuple[dict[str, Any], ...] = (
    {"status": 429, "headers": {"retry-after": "0"}},
    {"status": 503},
    {"status": 500},
    {"fault": "cut"},
    {"fault": "reset"},
    {"fault": "bad_json"},
)
_PARKS: dict[str, Any] = {"status": 429, "headers": {"retry-after": "120"}}


@dataclass(frozen=True)
class Scene:
    """What one seed makes of a session."""

    seed: int
    turns: int
    wire: Format
    autonomy: Literal["full", "supervised"]
    faulty: float
    """How often an answer is a failure."""
    parks: bool
    asks: bool
    budget: str
    """In dollars; empty: more than enough."""
    max_turns: int
    """0: more than enough."""
    is_streaming: bool
    """Whether the server streams its answers, as it is asked to."""

    @property
    def grants(self) -> bool:
        """Whether the person who decides also grants."""
        return False

    @property
    def reach(self) -> int:
        """Within how many records something is done to a command."""
        return 12

    @property
    def model(self) -> str:
        """As `-m` names it."""
        return f"{self.wire}:gpt-test"

    @property
    def flags(self) -> tuple[str, ...]:
        """What the first command says beside the task."""
        limits = ("--budget", self.budget) if self.budget else ()
        turns = str(self.max_turns or 100)
        return ("-m", self.model, "--autonomy", self.autonomy, "--max-turns", turns, *limits)

    @property
    def ends(self) -> frozenset[str]:
        """How its runs may end, if nobody stops one."""
        return frozenset({"done", "limit"} if self.budget or self.max_turns else {"done"})

    @property
    def config(self) -> str:
        """The user file."""
        prices = "input_usd_per_mtok = {}.0\noutput_usd_per_mtok = {}.0\n".format(*PRICE)
        return f'max_output_tokens = 2000\n[catalog."*:gpt-test"]\n{prices}context_tokens = 128000\n'

    def furnish(self, folder: Path) -> None:
        """What lies in the workspace at first, and beside it."""
        (folder / "workspace" / "made").mkdir()
        (folder / "workspace" / LEDGER).write_text(END)


def scene(seed: int) -> Scene:
    """The scene of a seed."""
    chance = random.Random(f"scene {seed}")
    has_budget, has_turns = chance.random() < 0.12, chance.random() < 0.12
    return Scene(
        seed=seed,
        turns=chance.randint(3, 6),
        wire=chance.choice(("openai", "openai", "anthropic")),
        autonomy=chance.choice(("full", "full", "supervised")),
        faulty=chance.choice((0.0, 0.0, 0.25)),
        parks=chance.random() < 0.15,
        asks=chance.random() < 0.3,
        budget="0.15" if has_budget else "",
        max_turns=2 if has_turns and not has_budget else 0,
        is_streaming=chance.random() < 0.8,
    )


# --- what the model says ------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """One answer: the words, the calls, and what the judge knows of these."""

    text: str
    calls: tuple[ReplyCall, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    """The mark of each call, and the path that it writes."""


def said(scene: Scene, number: int, body: bytes) -> Said:
    """The answer of that number to a request."""
    if is_aside(body):
        return Said(f"It goes on, says answer {number}.")
    request = json.loads(body)
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    last = request["messages"][-1]
    if EPILOGUE in json.dumps(last) or turn >= scene.turns:
        return Said(f"All is done, says answer {number}.")
    if not request.get("tools"):
        return Said(f"I stop here, says answer {number}.")
    chance = random.Random(f"turn {scene.seed} {turn}")
    kinds = [chance.choice(_KINDS)]
    if kinds[0] == "several":
        kinds = ["write", "read", "write", "shell"]
    if kinds[0] == "two shells":
        kinds = ["shell", "shell", "edit"]
    if scene.asks and chance.random() < 0.4:
        kinds.insert(chance.randint(0, 1), "ask")
    calls, marks = [], []
    for index, kind in enumerate(kinds):
        mark = f"r{number}c{index}"
        call, path = call_of(kind, mark, body, chance)
        calls.append(call)
        marks.append((mark, path))
    return Said(f"Answer {number} for turn {turn}. " + "I work. " * 20, tuple(calls), tuple(marks))


def call_of(kind: Kind, mark: str, body: bytes, chance: random.Random) -> tuple[ReplyCall, str]:
    """A call with that mark, and the path that it writes."""
    made = _made(body)
    if kind == "change" and not made:
        kind = "write"
    match kind:
        case "write":
            path = f"made/{mark}.txt"
            return ReplyCall("write_file", {"path": path, "content": f"first of {mark}\n" * 50}), path
        case "edit":
            new = f"- edited by {mark}\n{END}"
            return ReplyCall("edit_file", {"path": LEDGER, "old": END, "new": new}), LEDGER
        case "change":
            path = made[-1]
            owner = Path(path).stem
            given = {"path": path, "old": f"first of {owner}\n" * 50, "new": f"edited by {mark}\n"}
            return ReplyCall("edit_file", given), path
        case "shell":
            pause = chance.choice((0, 0.02, 0.1))
            leaves = chance.choice(("", "(setsid sleep 300 &); ", "sleep 300 & "))
            command = (
                f"echo {mark} begun >> {EFFECTS}; {leaves}ls -l /proc/$$/fd >> {OPEN_FILES}; sleep {pause}; "
                f"echo {mark} ended >> {EFFECTS}"
            )
            return ReplyCall("shell", {"command": command}), ""
        case "long":
            return ReplyCall(
                "shell",
                {"command": f"echo {mark} begun >> {EFFECTS}; {LONG}; echo {mark} ended >> {EFFECTS}"},
            ), ""
        case "ask":
            return ReplyCall("ask_user", {"question": f"What about {mark}?", "options": ["this", "that"]}), ""
        case "list":
            return ReplyCall("list_dir", {}), ""
        case _:
            return ReplyCall("read_file", {"path": LEDGER}), ""


def _made(body: bytes) -> list[str]:
    """The files that were written and not changed since, as the model knows."""
    written: dict[str, None] = {}
    texts = dict(heard(body).answered)
    for ref, name, given in _asked(json.loads(body)["messages"]):
        path = given.get("path", "")
        if name == "write_file" and texts.get(ref, "").lstrip('"[{').find("Wrote") >= 0:
            written[path] = None
        elif name == "edit_file":
            written.pop(path, None)
    return list(written)


def _asked(messages: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            found.append((call["id"], function["name"], json.loads(function["arguments"])))
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                found.append((block["id"], block["name"], block["input"]))
    return found


# --- the server ---------------------------------------------------------------------------------


class SceneServer(ModelServer):
    """The server of one scene, which keeps what it was asked and what it answered."""

    def __init__(self, scene: Scene, on_request: Callable[[], None] = lambda: None) -> None:
        super().__init__(())
        self.scene = scene
        self.served: list[Served] = []
        self._on_request = on_request
        self._failed = 0

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        """As `ModelServer.answer`."""
        number = len(self.served)
        self._on_request()
        said_now = self.said(number, request.body)
        chance = random.Random(f"answer {self.scene.seed} {number}")
        written = len(said_now.text) // 4 + sum(len(call.text) for call in said_now.calls) // 4 + 1
        usage = (len(request.body) // 4, written)
        reply = Reply(
            text=said_now.text,
            tool_calls=said_now.calls,
            usage=Usage(input_tokens=usage[0], output_tokens=usage[1]),
            pieces=chance.choice((1, 10)),
            delay_s=chance.choice((0.0, 0.0, 0.03)),
            chunk_bytes=chance.choice((0, 0, 300)),
            pause_s=0.005,
        )
        fault = self._fault(chance)
        reply = msgspec.structs.replace(reply, **fault)
        is_streaming = self.scene.is_streaming and b'"stream":true' in request.body
        rendered = render(reply, self.scene.wire, number, is_streaming=is_streaming)
        output_cost = PRICE[1] * usage[1] if not fault else 0
        ref = ("chatcmpl-" if self.scene.wire == "openai" else "msg_") + str(number)
        prefix = "" if self.scene.wire == "openai" else "toolu_"
        self.served.append(
            Served(
                body=request.body,
                ref=ref,
                calls=tuple(
                    Call(f"{prefix}{call.id}_{number}_{index}", mark, call.name, path)
                    for index, (call, (mark, path)) in enumerate(
                        zip(said_now.calls, said_now.marks, strict=True)
                    )
                ),
                usage=usage,
                cost_microusd=0 if reply.status != 200 else PRICE[0] * usage[0] + output_cost,
                output_microusd=output_cost,
            )
        )
        return reply, rendered

    def said(self, number: int, body: bytes) -> Said:
        """What the model says."""
        return said(self.scene, number, body)

    def _fault(self, chance: random.Random) -> dict[str, Any]:
        """What is wrong with the answer; never three times in a row."""
        if self._failed < 2 and chance.random() < self.scene.faulty:
            self._failed += 1
            return chance.choice(_FAULTS)
        if self.scene.parks and not self._failed and chance.random() < 0.2:
            self._failed += 1
            return _PARKS
        self._failed = 0
        return {}


@contextmanager
def serving(server: SceneServer) -> Iterator[None]:
    """The server, in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
