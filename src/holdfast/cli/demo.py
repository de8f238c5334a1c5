"""`holdfast demo`: a scripted model drives the real loop, tools, sandbox and journal.

The demo starts `holdfast run`, kills it with SIGKILL in the middle of a command, continues with `resume` and
`approve` in other processes, and then checks its claims in the journal. `demo_story` has the story.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.app import open_sandbox
from holdfast.cli import demo_story
from holdfast.cli.demo_checks import Check, Evidence, checks
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.reading import read_session, reading
from holdfast.cli.terminal import columns, say, say_json
from holdfast.clock import SYSTEM_CLOCK
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.protocol.events import ToolCallStarted
from holdfast.protocol.limits import usd
from holdfast.sandbox.probing import interpreter
from holdfast.views.lines import COMMAND, Line, Span, safe_json
from holdfast.views.stored import StoredSession
from holdfast.views.story import story
from holdfast.views.timeline import timeline_lines

_FAILED = 1
_KEY = "demo:ferry"
_PATIENCE_S = 180.0
_LOOK_S = 0.05
_KEPT_VARIABLES = ("HOLDFAST_ADMIN_CONFIG", "HOLDFAST_DEBUG")
_SCRIPTED = (
    "The model is scripted: its responses come from a file. Everything else is real: the loop, the tools, the "
    "journal, the SIGKILL, the approval{sandbox}."
)
_MODES = ("bubblewrap", "landlock")
_MODE = "HOLDFAST_SANDBOX_MODE"
_WAY_OUT = (
    f"With {_MODE}=unsafe, the demo runs its commands with your permissions, and shows nothing of a sandbox."
)


Tell = Callable[[Iterable[Line | str]], None]
Until = Callable[[], Awaitable[bool]]


class Place(NamedTuple):
    """The folders and files of the demo. They are kept."""

    folder: Path
    """The folder that its commands run in."""
    home: Home
    project: Path
    script: Path
    sandbox: str
    """`unsafe`: none works here."""
    why: str
    """Why no sandbox works here; empty if one does."""

    @property
    def is_walled(self) -> bool:
        """Return whether the commands of the agent run in a sandbox."""
        return self.sandbox != "unsafe"

    @property
    def about(self) -> str:
        """Say what is real."""
        return _SCRIPTED.format(sandbox=", the sandbox" if self.is_walled else "")

    def command(self, *words: str) -> list[str]:
        """Return a command on this home, as a user would type it."""
        return ["holdfast", "--home", str(self.home.folder), *words]


class Step(msgspec.Struct, frozen=True):
    """A command with its exit code."""

    command: list[str]
    exit: int
    """Negative for a signal."""


def demo(home: HomeFlag = None, is_json: JsonFlag = False) -> int:
    """Watch an agent fix a bug: it is killed in the middle, resumes, and asks for an approval. Needs no key.

    \b
    holdfast demo

    The model is scripted, everything else is real. The demo keeps its files. Exits 1 if a claim is not true.
    """
    place = prepared(home)
    tell = _silent if is_json else _say_at_once
    tell(
        [
            [
                Span("holdfast demo", "bold"),
                f"  in {place.folder}, which is kept",
            ],
            [Span(place.about, "yellow")],
            *about_sandbox(place),
            "",
        ]
    )
    started_s = time.monotonic()
    evidence, steps = asyncio.run(_play(place, tell))
    found = checks(evidence)
    took_s = time.monotonic() - started_s
    is_as_told = all(check.ok for check in found)
    if is_json:
        say_json(_as_json(place, evidence, steps, found, took_s))
    else:
        say(_closing(place, evidence, found, took_s))
    return 0 if is_as_told else _FAILED


# --- the place ----------------------------------------------------------------------------------


def prepared(named: str | None) -> Place:
    """Create a home with a price for the script, and a project with a bug.

    Raises:
        UsageError: The named home is not empty.
        SandboxUnavailable: No sandbox works here, and the user has not said that commands may run without one.
    """
    if named and (used := home_of(named).folder).exists() and any(used.iterdir()):
        raise UsageError(f"{used} is not empty.", hint="The demo needs a new or empty home.")
    sandbox, why = asyncio.run(_sandbox())
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    home = home_of(named or str(folder / "home"))
    home.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = Place(folder, home, folder / "ferry", folder / "model.jsonl", sandbox, why)
    home.user_file.write_text(demo_story.config(place.sandbox, interpreter()))
    script = demo_story.script(is_walled=place.is_walled)
    place.script.write_text("".join(json.dumps(line) + "\n" for line in script))
    place.project.mkdir()
    for name, content in demo_story.FILES.items():
        (place.project / name).write_text(content)
    return place


async def _sandbox() -> tuple[str, str]:
    """Return the first sandbox that keeps anything out here; otherwise `unsafe` and why, if the user says so."""
    why = []
    for mode in _MODES:
        try:
            await open_sandbox(load_only({"sandbox": {"mode": mode}}))
        except SandboxUnavailable as error:
            why.append(error.message)
        else:
            return mode, ""
    if os.environ.get(_MODE) != "unsafe":
        raise SandboxUnavailable(" ".join(why), hint=_WAY_OUT)
    return "unsafe", " ".join(why)


def _environment() -> dict[str, str]:
    """Return the environment of the commands: no settings of the user, and this Python first on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") or k in _KEPT_VARIABLES}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


# --- the play -----------------------------------------------------------------------------------


async def _play(place: Place, tell: Tell) -> tuple[Evidence, list[Step]]:
    """Run all commands in order. Return the evidence and the commands."""
    steps: list[Step] = []
    sent: list[str] = []
    key = secrets.token_hex(16)
    thief = await _steal_outside(place, key, sent) if place.is_walled else None

    async def run(about: str, *words: str, until: Until | None = None) -> str:
        command = place.command(*words)
        tell([[Span("$ ", "dim"), Span(shlex.join(command), COMMAND)], [f"  {about}"]])
        code, out = await _process(place, command, lambda line: tell(_progress(line)), until)
        steps.append(Step(command, code))
        tell([[Span(f"  → {_ended(code)}", "cyan")], ""])
        return out

    await run(
        "The agent works. While it runs a long command, the process is killed.",
        "run", demo_story.TASK, "-s", _KEY, "-m", f"script:{place.script}", "-w", str(place.project),
        "--autonomy", "full", "--budget", demo_story.BUDGET_USD, "--approve-by", "wait", "--json",
        until=lambda: _is_in_the_middle(place),
    )  # fmt: skip
    killed_ms = SYSTEM_CLOCK.now_ms()
    before = await _session(place)
    await run(
        "Another process continues. From now on, commands need approval.",
        "resume", _KEY, "--autonomy", "supervised", "--json",
    )  # fmt: skip
    asked = (await run("What does the session wait for?", "approvals", "--json")).splitlines()
    waiting = json.loads(asked[0]) if asked else {"id": "none"}
    tell(_waiting(waiting))
    await run("A person approves the call, in a third process.", "approve", waiting["id"], "--note", "go on")
    result = await run("The session continues to its end.", "resume", _KEY, "--json")
    await run("Is every record intact?", "fsck")
    tests = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "unittest", cwd=place.project, stderr=asyncio.subprocess.DEVNULL
    )
    if thief is not None:
        thief.close()
    return Evidence(
        before=before.stored,
        after=await _session(place),
        killed_ms=killed_ms,
        marker=place.project / demo_story.MARKER,
        exits=tuple(step.exit for step in steps),
        result=json.loads(result) if result else {},
        tests_exit=await tests.wait(),
        sandbox=place.sandbox,
        key=key,
        sent=tuple(sent),
    ), steps


async def _steal_outside(place: Place, key: str, sent: list[str]) -> asyncio.Server:
    """Put a key beside the project, and a program into it that sends the key away. Start the program without a
    sandbox once, to show that it works. Return who listens to it, and keeps what arrives in `sent`.
    """

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append((await reader.read(1_000)).decode(errors="replace"))
        writer.close()

    listener = await asyncio.start_server(heard, "127.0.0.1", 0)
    file, program = place.folder / "key.txt", place.project / demo_story.STATUS
    file.write_text(key)
    program.write_text(demo_story.status_program(str(file), listener.sockets[0].getsockname()[1]))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    return listener


async def _process(
    place: Place, command: list[str], on_line: Callable[[str], None], until: Until | None
) -> tuple[int, str]:
    """Run a command to its end, or kill it when `until` is true. Return its exit code and stdout.

    `on_line` gets each line of stderr as it arrives.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *command[1:], cwd=place.folder, env=_environment(),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    telling = asyncio.create_task(_each_line(process.stderr, on_line))
    answering = asyncio.create_task(process.stdout.read())
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while until is not None and not telling.done():
                if await until():
                    process.send_signal(signal.SIGKILL)
                    break
                await asyncio.sleep(_LOOK_S)
            await telling
            return await process.wait(), (await answering).decode()
    except TimeoutError:
        on_line(f"It did not end within {_PATIENCE_S:g} s.")
        return _FAILED, ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _each_line(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    async for line in stream:
        on_line(line.decode(errors="replace").rstrip("\n"))


async def _is_in_the_middle(place: Place) -> bool:
    """Return whether the long command is recorded as started, and running."""
    if not (place.project / demo_story.MARKER).exists():
        return False
    started = [r.event for r in (await _session(place)).records if isinstance(r.event, ToolCallStarted)]
    return bool(started) and started[-1].name == "shell"


async def _session(place: Place) -> StoredSession:
    async with reading(place.home) as store:
        return await read_session(store, _KEY)


# --- output -------------------------------------------------------------------------------------


def _say_at_once(lines: Iterable[Line | str]) -> None:
    say(lines)
    sys.stdout.flush()


def _silent(lines: Iterable[Line | str]) -> None:
    """Write nothing: with --json, only the object is written."""


def about_sandbox(place: Place) -> Sequence[Line]:
    """Say in which sandbox commands run, or why in none."""
    if place.is_walled:
        return [[f"Commands run in a sandbox ({place.sandbox})."]]
    told = "No sandbox works here, so commands run with your permissions, and this demo shows nothing of one."
    return [[Span(f"{told} {place.why}", "yellow")]]


def _waiting(approval: Mapping[str, Any]) -> Sequence[Line]:
    """Return what the approval is about: the tool and its arguments."""
    arguments = approval.get("arguments", {})
    about = arguments.get("command") or safe_json(arguments)
    return [[Span("  waits for approval: ", "yellow"), f"{approval.get('tool', '')}: {about}"], ""]


def _progress(line: str) -> Sequence[Line]:
    return [[Span(f"  │ {line}", "dim")]] if line.strip() else []


def _ended(code: int) -> str:
    told = {
        0: "exit 0",
        5: "exit 5: waiting for a person",
        -signal.SIGKILL: "killed with SIGKILL, in the middle of a command",
    }
    return told.get(code, f"exit {code}")


def _closing(place: Place, evidence: Evidence, found: Sequence[Check], took_s: float) -> Iterator[Line | str]:
    yield [Span("What the journal shows", "bold")]
    for check in found:
        mark = Span("✓ ", "green") if check.ok else Span("✗ ", "bold red")
        yield ["  ", mark, check.claim, Span(f"  {check.detail}" if check.detail else "", "dim")]
    yield ""
    yield from timeline_lines(story(evidence.after.records), columns(sys.stdout))
    broken = sum(not check.ok for check in found)
    if broken:
        yield [Span(f"{broken} of {len(found)} claims are not true.", "bold red"), " Please report this."]
    else:
        yield [
            Span("Every claim is true.", "bold green"),
            f" It took {took_s:.0f} s. The model was scripted.",
        ]
    yield ""
    yield [Span("See for yourself", "bold")]
    for command, about in _looks(place):
        yield [Span(f"  {about}:", "dim")]
        yield ["    ", Span(shlex.join(command), COMMAND)]
    yield ["Then choose a model: ", Span("holdfast init", COMMAND)]


def _looks(place: Place) -> list[tuple[list[str], str]]:
    after_crash = "7" if place.is_walled else "6"
    return [
        (place.command("show", "last"), "the conversation"),
        (place.command("show", "last", "--timeline"), "the timeline above"),
        (place.command("show", "last", "--events"), "the journal"),
        (place.command("show", "last", "--request", after_crash), "the request after the crash"),
        (place.command("replay", "last"), "the same decisions again"),
    ]


def _as_json(
    place: Place, evidence: Evidence, steps: Sequence[Step], found: Sequence[Check], took_s: float
) -> dict[str, Any]:
    return {
        "ok": all(check.ok for check in found),
        "model": "scripted",
        "about": place.about,
        "sandbox": place.sandbox,
        "session": evidence.after.row.session,
        "home": str(place.home.folder),
        "project": str(place.project),
        "steps": steps,
        "checks": found,
        "cost_usd": usd(evidence.after.row.cost_microusd or 0),
        "seconds": round(took_s, 1),
        "look": [shlex.join(command) for command, _ in _looks(place)],
    }
