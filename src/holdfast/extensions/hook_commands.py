"""Runs the command of a hook: the event as JSON on its standard input, its answer on its standard output.

It runs in a process tree of its own with a clean environment, which Holdfast ends when the hook is late, prints too
much, or is no longer wanted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Launch
from holdfast.protocol.hooks import HookSource, Occasion
from holdfast.protocol.ports import Check
from holdfast.redact import AROUND_CHARS, ever_known, reach_bytes_of, split_bytes_at
from holdfast.sandbox.process import Ended, Processes
from holdfast.sandbox.unnamed import unnamed_file
from holdfast.tools.blocking import Refused
from holdfast.tools.fencing import Enclosure
from holdfast.tools.within import cause, how_ended

MOST_BYTES = 64 * 1024
"""The most that a hook may answer."""
EVENT = "HOLDFAST_EVENT"
_NAMES = ("PATH", "HOME", "LANG", "TZ", "TERM")
_ERROR_BYTES = 64 << 10
"""How much of the end of its error output is kept."""
_CHUNK_BYTES = 1 << 16


class HookFailed(Exception):
    """A hook gave no valid answer. The message says why, as the end of a sentence.

    Args:
        message: Why.
        said: What it wrote itself, whole: it is masked before it is cut.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said


def environment_for(occasion: Occasion, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a hook sees: none of them could contain a secret."""
    return {name: environ[name] for name in _NAMES if name in environ} | {EVENT: occasion.event}


def body_of(source: HookSource, occasion: Occasion) -> bytes:
    """Return the event as the hook reads it."""
    head = {"event": occasion.event, "hook": source.hook.name, "session": occasion.session}
    return msgspec.json.encode({**head, "workspace": occasion.workspace, **occasion.facts})


class CommandHook:
    """The hooks of a runtime that are commands.

    Args:
        environ: The environment, of which a hook sees little.
        enclosure: The sandbox in which hooks run; None: in none.
    """

    def __init__(self, environ: Mapping[str, str], enclosure: Enclosure | None = None) -> None:
        self._environ = environ
        self._enclosure = enclosure
        self._processes = Processes(enclosure.sandbox if enclosure is not None else None)

    async def answer(self, source: HookSource, occasion: Occasion, check: Check) -> str:
        """Return what the command prints.

        Raises:
            HookFailed: it could not be started, was late, failed or printed too much.
            Lapsed: the check failed, and it was not started.
        """
        try:
            return await self._answer(source, occasion, check)
        except OSError as error:
            raise HookFailed(f"{source.command[0]} could not be started: {error.strerror}") from None
        except (Refused, SandboxUnavailable) as refusal:
            raise HookFailed(f"{source.command[0]} was not started: {refusal}") from None

    async def _answer(self, source: HookSource, occasion: Occasion, check: Check) -> str:
        timeout_s = source.hook.timeout_s
        with unnamed_file() as stdin, _ErrorOutput() as stderr:
            stdin.write(body_of(source, occasion))
            stdin.seek(0)
            launch = Launch(
                argv=source.command,
                cwd=occasion.workspace,
                key=occasion.key,
                env=environment_for(occasion, self._environ),
                timeout_s=timeout_s,
                idle_s=timeout_s,
                check=check,
                stdin_fd=stdin.fileno(),
                stderr_fd=stderr.writing,
                flood_bytes=MOST_BYTES,
            )
            if self._enclosure is not None:
                launch = await self._enclosure.around(launch, occasion.workspace, source.hook.files)
            ended = await self._processes.run(launch, lambda _: None)
            if why := _problem(ended, timeout_s):
                said = stderr.text()
                if self._enclosure is not None:
                    printed = replace(ended, output=said)
                    limit = cause(printed, launch.fence, self._enclosure.sandbox.backend)
                    why = f"{why}; {limit}" if limit else why
                raise HookFailed(why, said)
            return ended.output

    async def aclose(self) -> None:
        """End what still runs."""
        await self._processes.aclose()


def _problem(ended: Ended, timeout_s: float) -> str:
    if ended.output_bytes > MOST_BYTES:
        return f"it wrote more than {MOST_BYTES // 1024} KiB"
    if ended.how in ("timeout", "idle"):
        return f"it did not answer within {timeout_s:g} s"
    if ended.how != "exited" or ended.exit_code < 0:
        return f"it was {how_ended(ended)}"
    return f"its exit code was {ended.exit_code}" if ended.exit_code else ""


class _ErrorOutput:
    """A pipe for error output, of which the end is kept. It is read as it comes, so that it never blocks the hook."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._is_cut = False
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def __enter__(self) -> _ErrorOutput:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        os.close(self.writing)

    def text(self) -> str:
        """Return the end of what was written. A little more of it is kept: it shows whether a secret lies where it is
        cut.
        """
        while self._read():
            pass
        if not self._is_cut:
            return self._kept.decode(errors="replace").strip()
        redact = ever_known()
        return split_bytes_at(redact, bytes(self._kept), reach_bytes_of(redact))[1].strip()

    def _read(self) -> bool:
        """Read what is there. Return False if nothing is."""
        try:
            self._kept += os.read(self._reading, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if len(self._kept) > _ERROR_BYTES + AROUND_CHARS:
            del self._kept[: -_ERROR_BYTES - AROUND_CHARS]
            self._is_cut = True
        return True
