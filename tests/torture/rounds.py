"""Rounds of torture: one session each, with all that is done to it, from a seed; and what the judge says of it.

`kill`: processes are killed at random moments, also those that recover, and the child of a command alone.
`stop`: a driver is stopped between a commit and its effect, another one goes on, and then the first one wakes.
`clock`: the clock on the wall is set forwards and back, for all processes at once.
`speak`: others bring messages while the session is driven, and processes are killed.
`view`: others compact the view and bring it back meanwhile, and processes are killed.
`long-kill` and so on: the same, for a session with many turns in a small window.
`hands-kill` and so on: the same, for a session with hooks, patches, grants, decisions that come later, a limit of
calls an hour, pages and processes in the background. The hook itself kills or stops its driver, its guard or the
keeper.
`walls-kill` and so on: the same, in a sandbox, while secret files come and go (`walls`).
`land-kill` and so on: the same, in the sandbox that needs no namespaces.
`hands-fight`: others drive, stop and pause such a session meanwhile, and several people decide at once.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.edge.machine import CUSTOMIZED, make_machine
from tests.torture.evidence import HOOKS, RULE, RULES, Evidence, Fault, Ran, bodies, journal
from tests.torture.hands_judge import judge_hands
from tests.torture.hands_scene import HandsScene, HandsServer, hands_scene
from tests.torture.judge import alive, judge
from tests.torture.long_scene import LongServer, long_scene
from tests.torture.renames import renames_in
from tests.torture.scene import EPILOGUE, Scene, SceneServer, scene, serving
from tests.torture.walls import (
    WallsScene,
    WallsServer,
    coming_and_going,
    hit,
    judge_walls,
    land_scene,
    traces,
    walls_scene,
)
from tests.torture.world import SESSION, Blow, Going, OnRecord, Record, World, follow, nothing

LEASE_MS = 1_500
ORDER = "order"
"""A moment that a hook brings about (`hands_hook`)."""


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
            if world.scene.grants and words[0] == "approve" and world.chance.random() < 0.5:
                words = (*words, "--always")
        if world.is_contested and row["tool"] != "ask_user":
            decide_at_once(world, row["id"])
            continue
        blow = next(blows, None) if world.chance.random() < 0.25 else None
        if blow is not None and not blow.moment:
            blow = Blow(delay_s=world.chance.uniform(0, 0.5))
        done = follow(world, *words, blow=blow)
        if "--always" in words and done.code == 2:  # no grant is possible
            follow(world, *words[:2])


def a_kill(world: World) -> Blow:
    """A command is killed soon after one of its records."""
    return Blow(world.chance.randint(1, world.scene.reach), world.chance.uniform(0, 0.08))


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
    return Meddler(
        world,
        (world.chance.choice(("stop", "pause")), SESSION),
        world.chance.randint(6, 2 * world.scene.reach + 1),
    )


# --- the rounds ---------------------------------------------------------------------------------


def kill_round(world: World) -> None:
    """SIGKILL, again and again."""
    chance, meddling = world.chance, meddler(world)
    most = chance.randint(2, 7)

    def blows() -> Iterator[Blow]:
        while world.blows < most:
            kind = chance.random()
            if kind < 0.5:
                yield a_kill(world)
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


def stop_round(world: World, moments: Sequence[str] = MOMENTS) -> None:
    """SIGSTOP between a commit and its effect, past the lease; SIGCONT when another one has gone on."""
    chance = world.chance
    world.environ |= {"LEASE_MS": str(LEASE_MS)}
    sleepers: list[Sleeper] = []
    last: Ran | None = None
    for _ in range(chance.choice((1, 1, 1, 2))):
        words, says = begin(world) if last is None and not sleepers else (("resume", SESSION), "")
        moment = f"{chance.choice(moments)}:{chance.randint(1, 4)}"
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

    blows = iter([a_kill(world)] if chance.random() < 0.3 else [])
    if sleepers:
        last = follow(world, "resume", SESSION, blow=next(blows, None), on_record=wake)
    work(world, blows, wake, last=last)
    for sleeper in sleepers:
        sleeper.wake()
        sleeper.join()


class Sleeper:
    """A command that stops itself at a moment, and is heard in a thread of its own."""

    def __init__(self, world: World, words: tuple[str, ...], says: str, moment: str) -> None:
        if moment.startswith(ORDER):
            give_order(world, int(moment.removeprefix(f"{ORDER}:")), signal.SIGSTOP, "driver")
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
    jumps = sorted(chance.randint(1, 3 * world.scene.reach) for _ in range(chance.randint(1, 3)))
    told = 0

    def jump(_: Record) -> None:
        nonlocal told
        told += 1
        while jumps and jumps[0] <= told:
            jumps.pop(0)
            set_clock(clock, chance.choice((-1, 1)) * chance.choice(STEPS_S) * 1000 + chance.randint(0, 999))
            world.blows += 1

    blows = iter([a_kill(world)] if chance.random() < 0.25 else [])
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
    work_among(world, others, chance.randint(0, 4))


def work_among(world: World, others: Sequence[Meddler], most: int) -> None:
    """Work while others come in, and kill the driver at most so many times."""

    def blows() -> Iterator[Blow]:
        while world.blows < most:
            yield a_kill(world)

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


def view_round(world: World) -> None:
    """Others compact the view and restore it, while the session is driven and killed."""
    chance = world.chance
    others = []
    for _ in range(chance.randint(2, 6)):
        words = ("compact", SESSION, *(("--undo",) if chance.random() < 0.4 else ()))
        blow = Blow(delay_s=chance.uniform(0, 1.5)) if chance.random() < 0.3 else None
        others.append(Meddler(world, words, chance.randint(3, 4 * world.scene.reach), "", blow))
    work_among(world, others, chance.randint(0, 3))
    for _ in range(2):
        if chance.random() < 0.5:
            follow(world, "compact", SESSION, *(("--undo",) if chance.random() < 0.5 else ()))


ROUNDS: dict[str, Callable[[World], None]] = {
    "kill": kill_round,
    "stop": stop_round,
    "clock": clock_round,
    "speak": speak_round,
    "calm": calm_round,
    "view": view_round,
}
LONG = "long-"
"""The kinds with this before their name have long sessions in a small window."""
HANDS = "hands-"
"""Those with this have hooks, patches, grants and decisions that come later."""
WALLS = "walls-"
"""Those with this run their commands in a sandbox."""
LAND = "land-"
"""Those with this run them in the other one."""


# --- rounds with hooks --------------------------------------------------------------------------


def give_order(world: World, number: int, blow: int, whom: str) -> None:
    """The hook that is asked or told as the next one but so many sends a signal: to the driver, its guard or the
    keeper."""
    (world.machine.folder / HOOKS / "order").write_text(f"{number} {blow} {whom}")


def hands_kill_round(world: World) -> None:
    """SIGKILL, also by a hook at work, and between the files of a patch."""
    chance, meddling = world.chance, meddler(world)
    most = chance.randint(2, 7)

    def blows() -> Iterator[Blow | None]:
        while world.blows < most:
            kind = chance.random()
            if kind < 0.3:
                yield a_kill(world)
            elif kind < 0.4:
                yield Blow(0, chance.uniform(0, 0.8))
            elif kind < 0.65:
                moments = (f".{chance.randint(1, 5_000)}", f"S{chance.randint(1, 60)}")
                renames = tuple(f"R{chance.randint(1, 6)}" for _ in range(4))
                yield Blow(moment=chance.choice((*moments, *renames)))
            elif kind < 0.72:
                yield Blow(delay_s=chance.uniform(0, 0.08), child=True)
            else:
                whom = chance.choice(("driver", "driver", "guard", "keeper"))
                number = signal.SIGSTOP if whom == "guard" and chance.random() < 0.5 else signal.SIGKILL
                give_order(world, chance.randint(1, 9), number, whom)
                world.blows += whom != "driver"
                yield Blow(moment=ORDER)

    work(world, blows(), meddling.on_record if meddling else nothing)
    if meddling:
        meddling.join()


def hands_stop_round(world: World) -> None:
    """SIGSTOP past the lease, also while a hook is at work and between the files of a patch."""
    stop_round(world, (*MOMENTS, "written", "written", *(ORDER,) * 4))


def hands_fight_round(world: World) -> None:
    """Others resume the session while it is driven, and several decide at once; some of them are killed."""
    chance = world.chance
    others = [
        Meddler(
            world,
            chance.choice((("resume", SESSION), ("resume", SESSION), ("stop", SESSION), ("pause", SESSION))),
            chance.randint(3, 3 * world.scene.reach),
            "",
            Blow(delay_s=chance.uniform(0, 1.5)) if chance.random() < 0.4 else None,
        )
        for _ in range(chance.randint(1, 4))
    ]
    world.is_contested = True
    work_among(world, others, chance.randint(0, 3))


def decide_at_once(world: World, approval: str) -> None:
    """Three people decide in the same moment, each in their way."""
    ways = [
        ("approve", approval, "--always"),
        ("deny", approval),
        ("approve", approval),
        ("approve", approval),
    ]
    world.chance.shuffle(ways)
    threads = [threading.Thread(target=follow, args=(world, *words)) for words in ways[:3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    follow(world, "approve", approval)  # in case that all three asked for what is not offered


HANDS_ROUNDS = {**ROUNDS, "fight": hands_fight_round, "kill": hands_kill_round, "stop": hands_stop_round}


def walls_kill_round(world: World) -> None:
    """Something of a command's tree is killed or frozen, and sometimes the driver too."""

    def blows() -> Iterator[Blow | None]:
        while world.blows < 7:
            yield a_kill(world) if world.chance.random() < 0.3 else None

    with coming_and_going(world.machine.workspace, world.scene.seed):
        work(world, blows(), lambda record: hit(world, record))


WALLS_ROUNDS = {"kill": walls_kill_round, "stop": stop_round, "calm": calm_round, "speak": speak_round}
KINDS = (
    *ROUNDS,
    *(LONG + kind for kind in ROUNDS),
    *(HANDS + kind for kind in HANDS_ROUNDS),
    *(WALLS + kind for kind in WALLS_ROUNDS),
    *(LAND + kind for kind in WALLS_ROUNDS),
)


# --- one round and its verdict ------------------------------------------------------------------


class Gathered(NamedTuple):
    """A round that is over, and what is known of it."""

    world: World
    evidence: Evidence
    is_over: bool
    """Whether the session came to its end."""


def gather(
    torment: Callable[[World], None],
    seed: int,
    folder: Path,
    serve: type[SceneServer] = SceneServer,
    make: Callable[[int], Scene] = scene,
) -> Gathered:
    """Play a round in a folder."""
    machine = make_machine(folder)
    (machine.workspace / RULES).write_text(f"- {RULE}\n")
    world = World(machine, make(seed), random.Random(f"{torment.__name__.removesuffix('_round')} {seed}"), {})
    world.scene.furnish(folder)
    server = serve(world.scene, world.count_descriptors)
    with serving(server), renames_in(machine.workspace, ".", "made") as renames:
        world.environ |= {
            "PYTHONPATH": str(CUSTOMIZED),
            "FIRST_DELAY_MS": "10",
            "OPENAI_BASE_URL": server.openai_url,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "none",
        }
        machine.configure(world.scene.config.replace("PORT", server.url.rpartition(":")[2]))
        torment(world)
        (folder / HOOKS / ORDER).unlink(missing_ok=True)
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
        name = kind.rpartition("-")[2]
        if kind.startswith(HANDS):
            gathered = gather(HANDS_ROUNDS[name], seed, folder, HandsServer, hands_scene)
            assert isinstance(gathered.world.scene, HandsScene)
            made = gathered.world.scene
            verdict = judge_hands(gathered.evidence, is_hooked=made.is_hooked, most_actions=made.most_actions)
        elif kind.startswith((WALLS, LAND)):
            before, make = traces(), land_scene if kind.startswith(LAND) else walls_scene
            gathered = gather(WALLS_ROUNDS[name], seed, folder, WallsServer, make)
            assert isinstance(gathered.world.scene, WallsScene)
            verdict = judge_walls(gathered.evidence, before, gathered.world.scene.backend)
        elif kind.startswith(LONG):
            gathered = gather(ROUNDS[name], seed, folder, LongServer, long_scene)
            verdict = judge(gathered.evidence)
        else:
            gathered = gather(ROUNDS[name], seed, folder)
            verdict = judge(gathered.evidence)
        faults = [*verdict, *own_view(gathered)]
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
    ended = bodies(rows, "Responded", "ModelCallFailed", "ModelCallCut", "SideCallEnded")
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
