"""The world of a round: the machine, the scene, the commands at work, and the blows that hit them."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.edge.machine import Machine, descendants
from tests.torture.evidence import Ran
from tests.torture.scene import Scene

SESSION = "test:torture"
PATIENCE_S = 60.0
"""A command that takes longer hangs: none has so much to do, on any machine."""
MOST_COMMANDS = 60
"""A session that is not at its end after so many commands gets nowhere."""

Record = Mapping[str, Any]
OnRecord = Callable[[Record], None]


class Blow(NamedTuple):
    """When and how a command is killed."""

    records: int = 0
    """After it told so many."""
    delay_s: float = 0.0
    """And so long after that."""
    moment: str = ""
    """Or at a moment that it counts itself (`tests/edge/customized`)."""
    child: bool = False
    """Not the command but a process that it started, when it runs a command of its own."""


def nothing(_: object) -> None:
    """Nothing happens."""


# --- the world of a round -----------------------------------------------------------------------


@dataclass
class World:
    """One round while it lasts."""

    machine: Machine
    scene: Scene
    chance: random.Random
    environ: dict[str, str]
    ran: list[Ran] = field(default_factory=list)
    blows: int = 0
    is_stopped: bool = False
    """Whether anybody stopped a run."""
    is_contested: bool = False
    """Whether several people decide at once."""
    is_frozen: bool = False
    """Whether a process slept (SIGSTOP)."""
    pids: list[int] = field(default_factory=list)
    """The processes of all commands."""
    driver: int = 0
    """The process that was started last to drive."""
    descriptors: list[tuple[int, int]] = field(default_factory=list)

    def count_descriptors(self) -> None:
        """How many files the driver holds open."""
        with suppress(OSError):
            self.descriptors.append((self.driver, len(list(Path(f"/proc/{self.driver}/fd").iterdir()))))

    @property
    def is_endless(self) -> bool:
        """Whether it gets nowhere."""
        return len(self.ran) >= MOST_COMMANDS


class Going:
    """A command at work."""

    def __init__(
        self,
        world: World,
        words: tuple[str, ...],
        says: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        *,
        is_loaded_anew: bool = False,
    ) -> None:
        """`is_loaded_anew`: it loads its modules itself, so that it may be killed meanwhile."""
        self._world = world
        self._words = words
        self._says = says
        is_driver = words[0] in ("run", "resume")
        options = ("--stream-json",) if is_driver else ("--json",) if words[0] == "approvals" else ()
        whole = {**world.environ, **environ}
        self.process = world.machine.start(*words, *options, is_loaded_anew=is_loaded_anew, **whole)
        world.pids.append(self.process.pid)
        if is_driver and threading.current_thread() is threading.main_thread():  # who meddles may only follow
            world.driver = self.process.pid
        self.was_killed = self._hung = False
        self._timers: list[threading.Timer] = []

    def to_end(self, blow: Blow | None = None, on_record: OnRecord = nothing) -> Ran:
        """Hear what it tells, hit it as is meant, and wait for its end."""
        rows: list[dict[str, Any]] = []
        self._after(PATIENCE_S, self._give_up)
        self._hit_after(blow, rows, {})
        assert self.process.stdout is not None
        with self.process:
            for line in self.process.stdout:
                if line.startswith("{") and line.endswith("}\n"):
                    rows.append(json.loads(line))
                    if "seq" in rows[-1]:
                        on_record(rows[-1])
                        self._hit_after(blow, rows, rows[-1])
            code = self.process.wait()
        for timer in self._timers:
            timer.cancel()
        if code == -9 and not self._hung and not self.was_killed:  # at a moment, or by a hook
            self.was_killed = True
            self._world.blows += 1
        ran = Ran(self._words, code, tuple(rows), self.was_killed, self._hung, self._says)
        self._world.ran.append(ran)
        return ran

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(delay_s, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _hit_after(self, blow: Blow | None, rows: list[dict[str, Any]], last: Record) -> None:
        if blow is None or blow.moment:
            return
        if blow.child:
            if last.get("type") == "ToolCallStarted" and last["name"] == "shell":
                self._after(blow.delay_s, self._kill_child)
        elif len([row for row in rows if "seq" in row]) == blow.records and (last or not blow.records):
            self._after(blow.delay_s, self._kill)

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.was_killed = True
            self._world.blows += 1
            self.process.kill()

    def _kill_child(self) -> None:
        below = descendants(self.process.pid)
        if below and self.process.poll() is None:
            with suppress(OSError):
                os.kill(self._world.chance.choice(below), signal.SIGKILL)
                self._world.blows += 1

    def _give_up(self) -> None:
        self._hung = True
        with suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()


def follow(
    world: World,
    *words: str,
    blow: Blow | None = None,
    says: str = "",
    on_record: OnRecord = nothing,
    **environ: str,
) -> Ran:
    """One command from its start to its end."""
    moment = {"MOMENT": blow.moment, "SIGNAL": "9"} if blow is not None and blow.moment else {}
    is_early = blow is not None and (blow.moment.startswith(".") or blow == Blow(delay_s=blow.delay_s))
    going = Going(world, words, says, {**environ, **moment}, is_loaded_anew=is_early)
    return going.to_end(blow, on_record)
