"""Asks the hooks that the configuration names, and reads their answers.

An answer may only say what it may: deny, ask, or other arguments. Everything else is a failure of the hook, so that a
misspelled `deny` lets nothing through.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import msgspec

from holdfast.context.clip import clean
from holdfast.errors import UsageError
from holdfast.extensions.factories import Factories
from holdfast.extensions.hook_commands import HookFailed
from holdfast.extensions.hook_functions import FunctionHook
from holdfast.protocol.hooks import DECIDED, REASON_CHARS, Hook, HookAnswer, HookSource, Occasion, failure_of
from holdfast.protocol.ports import Check
from holdfast.protocol.untrusted import decode_exact
from holdfast.redact import Redactor
from holdfast.tools.fencing import Enclosure

_KEYS = ("verdict", "reason", "arguments")
_VERDICTS = ("allow", "ask", "deny")
_SHOWN_CHARS = 60
_SAID_CHARS = 300
"""So much of what a hook wrote about its failure is shown."""


class Answering(Protocol):
    """One way to run hooks."""

    async def answer(self, source: HookSource, occasion: Occasion, check: Check) -> str:
        """Return what the hook says, as JSON.

        Raises:
            HookFailed: it gave no answer.
            Lapsed: the check failed, and it was not started.
        """
        ...

    async def aclose(self) -> None:
        """End what still runs."""
        ...


def _missing(source: HookSource, environ: Mapping[str, str]) -> str:
    """Return that there is no such program; empty if there is, or if nothing is denied without it. What lies in the
    workspace is not known yet.
    """
    program = source.command[0] if source.command else ""
    is_found = not program or ("/" in program and not program.startswith("/"))
    if is_found or source.hook.on_failure == "allow" or shutil.which(program, path=environ.get("PATH")):
        return ""
    return f"{source.origin}: hooks.{source.hook.name}.command: there is no program {program}."


class ConfiguredHooks:
    """The hooks of one runtime; implements `ports.Hooks`.

    Args:
        sources: The hooks, and what they run.
        redact: Masks what hooks say, before anybody reads it.
        environ: The environment, of which a hook sees little.
        factories: Where the functions of packages come from. Only those that `sources` name are loaded.
        enclosure: The sandbox in which commands run; None: in none.

    Raises:
        UsageError: a hook names a function that no package has, or that cannot be loaded; or a program that is not
            there, although calls are denied without it.
    """

    def __init__(
        self,
        sources: Iterable[HookSource],
        redact: Redactor,
        environ: Mapping[str, str],
        factories: Factories,
        enclosure: Enclosure | None = None,
    ) -> None:
        self._sources = {each.hook.name: each for each in sources}
        self._redact = redact
        self._ways: dict[str, Answering] = {}
        for source in self._sources.values():
            if source.python:
                where = f"{source.origin}: hooks.{source.hook.name}.python"
                found = factories.find("hooks", source.python, where)
                self._ways[source.hook.name] = FunctionHook(found)
        missing = [told for source in self._sources.values() if (told := _missing(source, environ))]
        if missing:
            raise UsageError("\n".join(missing), hint="Install it, correct it, or remove the hook.")
        self._commands: Answering = factories.find("hooks", "command")(environ, enclosure)

    async def ask(self, hook: Hook, occasion: Occasion, check: Check) -> HookAnswer:
        """Return what the hook answers within its time limit. If it is late or fails, `on_failure` counts.

        Raises:
            Lapsed: the check failed, and the hook was not started.
        """
        try:
            source = self._source(hook)
            way = self._ways.get(hook.name, self._commands)
            told = await way.answer(source, occasion, check)
            answer = answer_from(told) if occasion.event in DECIDED else HookAnswer()
        except HookFailed as error:
            said = self._redact(error.said).strip()[-_SAID_CHARS:]
            answer = failure_of(hook, f"{error}: {said}" if said else str(error))
        reason = clean(self._redact(answer.reason))[:REASON_CHARS]
        return msgspec.structs.replace(answer, reason=reason)

    async def aclose(self) -> None:
        """End what still runs."""
        for way in (*self._ways.values(), self._commands):
            await way.aclose()

    def _source(self, hook: Hook) -> HookSource:
        # The settings of a session name its hooks, and only this process says what they run. An imported session,
        # or one of another machine, brings no program with it.
        source = self._sources.get(hook.name)
        if source is None:
            raise HookFailed("the configuration of this process has no such hook")
        if source.hook.digest != hook.digest:
            raise HookFailed("it runs something else in this process")
        return msgspec.structs.replace(source, hook=hook)  # the settings of the run say how long it may take


def answer_from(told: str) -> HookAnswer:
    """Return the answer that a hook wrote as JSON.

    Raises:
        HookFailed: it is not valid.
    """
    try:
        said = decode_exact(told)
    except msgspec.DecodeError as error:
        why = f"its answer is not valid JSON: {error}"
        raise HookFailed(why if told.strip() else "it gave no answer") from None
    return checked(said)


def checked(said: Any) -> HookAnswer:
    """Return an answer as far as it counts: the verdict `allow` has no effect.

    Raises:
        HookFailed: it is not valid.
    """
    if not isinstance(said, dict):
        raise HookFailed("its answer is not a JSON object")
    for key in said:
        if key not in _KEYS:
            raise HookFailed(f"its answer has the unknown key {_shown(key)}{_near(key, _KEYS)}")
    verdict, reason, arguments = said.get("verdict", "allow"), said.get("reason", ""), said.get("arguments")
    if verdict not in _VERDICTS:
        raise HookFailed(f"its answer has the unknown verdict {_shown(verdict)}{_near(verdict, _VERDICTS)}")
    if not isinstance(reason, str):
        raise HookFailed("the reason of its answer is not a text")
    if "arguments" in said and not isinstance(arguments, dict):
        raise HookFailed("the arguments of its answer are not an object")
    return HookAnswer("" if verdict == "allow" else verdict, reason, arguments)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}..."


def _near(said: object, known: tuple[str, ...]) -> str:
    near = get_close_matches(str(said)[:_SHOWN_CHARS], known, n=1)
    return f"; did it mean {near[0]!r}" if near else ""
