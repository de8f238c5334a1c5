"""Rounds of torture: one session each, with all that is done to it, from a seed; and what the judge says of it.

`kill`: processes are killed at random moments, also those that recover, and the child of a command alone.
`stop`: a driver is stopped between a commit and its effect, another one goes on, and then the first one wakes.
`clock`: the clock on the wall is set forwards and back, for all processes at once.
`speak`: others bring messages while the session is driven, and processes are killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.edge.machine import CUSTOMIZED, Machine, descendants, make_machine
from tests.torture.evidence import Evidence, Fault, Ran, bodies, journal
from tests.torture.judge import alive, judge
from tests.torture.renames import renames_in
from tests.torture.scene import EPILOGUE, Scene, SceneServer, furnish, scene

SESSION = "test:torture"
PATIENCE_S = 60.0
"""A command that takes longer hangs: none has so much to do, on any machine."""
MOST_COMMANDS = 60
"""A session that is not at its end after so many commands gets nowhere."""
LEASE_MS = 1_500

Record = Mapping[str, Any]
OnRecord = Callable[[Record], None]


class Result(NamedTuple):
    """What came of a round."""

    kind: str
    seed: int
    blows: int
    """How often something was killed, stopped, or the clock set."""
    faults: tuple[Fault, ...]
    took_s: float
    folder: str
    """Where all of it lies; empty when nothing is wrong and it was removed."""


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
        if blow is not None and blow.moment and code == -9 and not self._hung:
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


# --- a person who uses the command line ---------------------------------------------------------


def begin(world: World) -> tuple[tuple[str, ...], str]:
    """The command that brings the task, and the task."""
    task = f"Do the work, please. ({len(world.ran)})"
    return ("run", task, "-s", SESSION, *world.scene.flags), task


def work(
    world: World,
    blows: Iterator[Blow],
    on_record: OnRecord = nothing,
    last: Ran | None = None,
) -> None:
    """All that a person does until the task is done: begin, decide, resume. `last`: how the command before ended."""
    while not world.is_endless:
        if last is None or (last.code == 2 and not last.records):  # it was killed before it was accepted
            words, says = begin(world)
        elif last.code == 0 and not last.was_killed:
            return
        elif last.was_killed or last.code in (3, 4, 7, 130):
            words, says = ("resume", SESSION), ""
        elif last.code == 5:
            decide(world, blows)
            words, says = ("resume", SESSION), ""
        else:
            return  # the judge will tell
        last = follow(world, *words, blow=next(blows, None), says=says, on_record=on_record)


def decide(world: World, blows: Iterator[Blow]) -> None:
    """Answer what is asked, from a process of its own, which may be killed as any other."""
    for row in follow(world, "approvals").rows:
        if row["tool"] == "ask_user":
            words = ("approve", row["id"], "--note", f"this ({row['id']})")
        else:
            words = ("approve" if world.chance.random() < 0.8 else "deny", row["id"])
        blow = next(blows, None) if world.chance.random() < 0.25 else None
        if blow is not None and not blow.moment:
            blow = Blow(delay_s=world.chance.uniform(0, 0.5))
        follow(world, *words, blow=blow)


class Meddler:
    """Somebody who pauses, stops or addresses the session from another process, when so many records were told."""

    def __init__(
        self, world: World, words: tuple[str, ...], at: int, says: str = "", blow: Blow | None = None
    ) -> None:
        self._world = world
        self._words = words
        self._left = at
        self._says = says
        self._blow = blow
        self._thread: threading.Thread | None = None

    def on_record(self, _: Record) -> None:
        """Count it."""
        self._left -= 1
        if not self._left:
            self._world.is_stopped |= self._words[0] == "stop"
            self._thread = threading.Thread(target=self._meddle)
            self._thread.start()

    def _meddle(self) -> None:
        follow(self._world, *self._words, says=self._says, blow=self._blow)

    def join(self) -> None:
        """Wait until it has done so."""
        if self._thread is not None:
            self._thread.join()


def meddler(world: World) -> Meddler | None:
    """In one of four rounds there is one."""
    if world.chance.random() < 0.75:
        return None
    return Meddler(world, (world.chance.choice(("stop", "pause")), SESSION), world.chance.randint(6, 25))


# --- the rounds ---------------------------------------------------------------------------------


def kill_round(world: World) -> None:
    """SIGKILL, again and again."""
    chance, meddling = world.chance, meddler(world)
    most = chance.randint(2, 7)

    def blows() -> Iterator[Blow]:
        while world.blows < most:
            kind = chance.random()
            if kind < 0.5:
                yield Blow(chance.randint(1, 12), chance.uniform(0, 0.08))
            elif kind < 0.65:
                yield Blow(0, chance.uniform(0, 0.8))
            elif kind < 0.85:
                moments = (f".{chance.randint(1, 5_000)}", f"S{chance.randint(1, 40)}", "R1")
                yield Blow(moment=chance.choice(moments))
            else:
                yield Blow(delay_s=chance.uniform(0, 0.08), child=True)

    work(world, blows(), meddling.on_record if meddling else nothing)
    if meddling:
        meddling.join()


MOMENTS = (
    *("commit:ToolCallStarted", "commit:ModelCallStarted", "commit:Responded", "commit:ToolCallFinished"),
    *("written", "connected", "starting"),
)


def stop_round(world: World) -> None:
    """SIGSTOP between a commit and its effect, past the lease; SIGCONT when another one has gone on."""
    chance = world.chance
    world.environ |= {"LEASE_MS": str(LEASE_MS)}
    sleepers: list[Sleeper] = []
    last: Ran | None = None
    for _ in range(chance.choice((1, 1, 1, 2))):
        words, says = begin(world) if last is None and not sleepers else (("resume", SESSION), "")
        moment = f"{chance.choice(MOMENTS)}:{chance.randint(1, 4)}"
        sleeper = Sleeper(world, words, says, moment)
        if not sleeper.is_asleep():
            last = sleeper.join()
            break
        last, world.is_frozen = None, True
        sleepers.append(sleeper)
        world.blows += 1
    wakes_at = chance.randint(1, 25) if chance.random() < 0.4 else 0
    told = 0

    def wake(_: Record) -> None:
        nonlocal told
        told += 1
        if told == wakes_at:
            for sleeper in sleepers:
                sleeper.wake()

    blows = iter([Blow(chance.randint(1, 12), chance.uniform(0, 0.08))] if chance.random() < 0.3 else [])
    if sleepers:
        last = follow(world, "resume", SESSION, blow=next(blows, None), on_record=wake)
    work(world, blows, wake, last=last)
    for sleeper in sleepers:
        sleeper.wake()
        sleeper.join()


class Sleeper:
    """A command that stops itself at a moment, and is heard in a thread of its own."""

    def __init__(self, world: World, words: tuple[str, ...], says: str, moment: str) -> None:
        self._going = Going(world, words, says, {"SLEEPS_AT": moment})
        self._ran: list[Ran] = []
        self._thread = threading.Thread(target=lambda: self._ran.append(self._going.to_end()))
        self._thread.start()

    def is_asleep(self) -> bool:
        """Wait until it is, or has ended; whether it is."""
        process = self._going.process
        while process.poll() is None:
            with suppress(OSError):
                if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    return True
            time.sleep(0.01)
        return False

    def wake(self) -> None:
        """Let it go on."""
        with suppress(OSError):
            self._going.process.send_signal(signal.SIGCONT)

    def join(self) -> Ran:
        """How it ended."""
        self._thread.join()
        return self._ran[0]


STEPS_S = (1, 60, 3_600, 86_400, 40 * 86_400, 400 * 86_400)


def clock_round(world: World) -> None:
    """Somebody sets the clock, once to three times; in one of four rounds something is killed too."""
    chance, clock = world.chance, world.machine.folder / "clock"
    world.environ["CLOCK"] = str(clock)
    set_clock(clock, 0)
    jumps = sorted(chance.randint(1, 40) for _ in range(chance.randint(1, 3)))
    told = 0

    def jump(_: Record) -> None:
        nonlocal told
        told += 1
        while jumps and jumps[0] <= told:
            jumps.pop(0)
            set_clock(clock, chance.choice((-1, 1)) * chance.choice(STEPS_S) * 1000 + chance.randint(0, 999))
            world.blows += 1

    blows = iter([Blow(chance.randint(1, 12), chance.uniform(0, 0.08))] if chance.random() < 0.25 else [])
    work(world, blows, jump)


def set_clock(clock: Path, offset_ms: int) -> None:
    """From now on all processes of the machine see this offset."""
    with clock.open("r+" if clock.exists() else "w") as file:  # in place: they hold it open
        file.write(f"{offset_ms:+020d}")


def speak_round(world: World) -> None:
    """One or two others bring a message to the session while it is driven; they and the drivers may be killed."""
    chance = world.chance
    others = [other for other in (meddler(world), speaker(world, 1)) if other is not None]
    others += [speaker(world, 2)] if chance.random() < 0.5 else []
    most = chance.randint(0, 4)

    def blows() -> Iterator[Blow]:
        while world.blows < most:
            yield Blow(chance.randint(1, 12), chance.uniform(0, 0.08))

    def on_record(record: Record) -> None:
        for other in others:
            other.on_record(record)

    work(world, blows(), on_record)
    for other in others:
        other.join()


def speaker(world: World, number: int) -> Meddler:
    """Somebody with a message, who is killed in one of two rounds."""
    chance, text = world.chance, f"This too, please. ({number})"
    blow = Blow(delay_s=chance.uniform(0, 1.5)) if chance.random() < 0.5 else None
    return Meddler(world, ("run", text, "-s", SESSION), chance.randint(3, 30), text, blow)


def calm_round(world: World) -> None:
    """Nothing is done to anybody: what the judge must find to be right."""
    work(world, iter(()))


ROUNDS: dict[str, Callable[[World], None]] = {
    "kill": kill_round,
    "stop": stop_round,
    "clock": clock_round,
    "speak": speak_round,
    "calm": calm_round,
}


# --- one round and its verdict ------------------------------------------------------------------


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


class Gathered(NamedTuple):
    """A round that is over, and what is known of it."""

    world: World
    evidence: Evidence
    is_over: bool
    """Whether the session came to its end."""


def gather(
    torment: Callable[[World], None], seed: int, folder: Path, serve: type[SceneServer] = SceneServer
) -> Gathered:
    """Play a round in a folder."""
    machine = make_machine(folder)
    furnish(machine.workspace)
    world = World(
        machine, scene(seed), random.Random(f"{torment.__name__.removesuffix('_round')} {seed}"), {}
    )
    machine.configure(world.scene.config)
    server = serve(world.scene, world.count_descriptors)
    with serving(server), renames_in(machine.workspace, ".", "made") as renames:
        world.environ |= {
            "PYTHONPATH": str(CUSTOMIZED),
            "FIRST_DELAY_MS": "10",
            "OPENAI_BASE_URL": server.openai_url,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "none",
        }
        torment(world)
        is_over = end(world)
        evidence = Evidence(
            folder=folder,
            home=machine.home,
            workspace=machine.workspace,
            ran=world.ran,
            served=server.served,
            renames=renames.counts(),
            ends=world.scene.ends | ({"interrupted"} if world.is_stopped else set()),
            said=machine.said.read_text(),
            is_frozen=world.is_frozen,
            pids=frozenset(world.pids),
            descriptors=world.descriptors,
        )
    return Gathered(world, evidence, is_over)


def play(kind: str, seed: int, *, keeps: bool = False) -> Result:
    """One round, and what the judge says of it; its folder stays where something is wrong."""
    begun_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-{seed}-"))
    try:
        gathered = gather(ROUNDS[kind], seed, folder)
        faults = [*judge(gathered.evidence), *own_view(gathered)]
    except Exception:  # noqa: BLE001 - the others are played all the same
        broken = Fault("code", f"the round itself broke: {traceback.format_exc()}")
        return Result(kind, seed, 0, (broken,), time.monotonic() - begun_s, str(folder))
    finally:
        clear_up(folder)
    if faults or keeps:
        _write_down(gathered, faults)
    else:
        shutil.rmtree(folder)
    kept = str(folder) if faults or keeps else ""
    return Result(kind, seed, gathered.world.blows, tuple(faults), time.monotonic() - begun_s, kept)


def clear_up(folder: Path) -> None:
    """End whatever is left of a round."""
    for pid, _ in alive(str(folder)):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def end(world: World) -> bool:
    """Tell the model that this was all, so that its next request reports everything. Return whether the run ends."""
    last = follow(world, "resume", SESSION, EPILOGUE, says=EPILOGUE)
    work(world, iter(()), last=last)
    return not world.ran[-1].code


def own_view(gathered: Gathered) -> Iterator[Fault]:
    """What Holdfast itself says of it: that all is whole, and what was spent."""
    world = gathered.world
    if not gathered.is_over:
        yield Fault("lost", "the session does not come to its end")
    checked = follow(world, "fsck", "--json")
    if checked.code:
        yield Fault("damaged", f"fsck ended {checked.code}: {checked.rows}")
    shown = follow(world, "show", SESSION, "--cost", "--json")
    if shown.code:
        yield Fault("code", f"show --cost ended {shown.code}")
        return
    rows = journal(world.machine.home)
    ended = bodies(rows, "Responded", "ModelCallFailed", "ModelCallCut")
    lost = {body["key"] for body in bodies(rows, "ModelCallAbandoned")}
    found = {
        "spent_usd": sum(body.get("cost_microusd", 0) for body in ended),
        "held_usd": sum(
            body["request"]["reserved_microusd"]
            for body in bodies(rows, "ModelCallStarted")
            if body["key"] in lost
        ),
    }
    for name, microusd in found.items():
        told = sum(round(float(row[name]) * 1_000_000) for row in shown.rows)
        if told != microusd:
            yield Fault("unreported", f"`show --cost` tells {name} {told} millionths, the journal {microusd}")


def _write_down(gathered: Gathered, faults: list[Fault]) -> None:
    """Everything that a person needs to see what happened."""
    folder = gathered.evidence.folder
    lines = [f"{fault.kind}: {fault.what}" for fault in faults]
    lines += ["", str(gathered.world.scene), ""]
    for ran in gathered.evidence.ran:
        told = [f"{row['seq']} {row['type']}" for row in ran.records]
        lines.append(f"{' '.join(ran.words)} -> {ran.code}{' killed' if ran.was_killed else ''}: {told}")
    (folder / "verdict.txt").write_text("\n".join(lines) + "\n")
    for number, each in enumerate(gathered.evidence.served):
        (folder / f"request-{number}.json").write_bytes(each.body)
