"""How the promises about processes in the background could be broken."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_CORE = "tests/core/test_background.py"
_TOOLS = "tests/tools/test_background.py"
_RUNS = "tests/scenarios/test_background.py"

BACKGROUND = (
    Mutation(
        "what was put aside is not told if a request ends the run",
        "runtime/driver.py",
        "batch += await self._take(found, now_ms, awake_ms)",
        "batch += fold.take(decision(fold.state, found, now_ms, awake_ms))",
        _RUNS,
    ),
    Mutation(
        "a process outlives its run",
        "runtime/driver.py",
        "            await tools.end_background(self._session)  # and forget those that ended by themselves\n",
        "            pass\n",
        _RUNS,
    ),
    Mutation(
        "a process outlives a run that somebody else ended",
        "runtime/controller.py",
        "                        await self._ports.tools.end_background(session)\n",
        "                        pass\n",
        _RUNS,
    ),
    Mutation(
        "a driver leaves the processes of another runtime alone",
        "runtime/driver.py",
        'keys += [f"{state.session}:{each}" for each in background]',
        "keys += []",
        _RUNS,
    ),
    Mutation(
        "a driver ends what still runs in its own runtime",
        "runtime/driver.py",
        "set(self._ports.tools.in_background(self._session)).intersection(known)",
        "set[str]()",
        _RUNS,
    ),
    Mutation(
        "nobody tells the model what is gone",
        "core/decide.py",
        "    notes += background.notes(draft.state.background, cause.background, is_branch=is_branch)\n",
        "",
        _CORE,
    ),
    Mutation(
        "a process that was seen to end counts as gone",
        "core/background.py",
        "return others if told.is_over else",
        "return",
        _CORE,
    ),
    Mutation(
        "a run that ended still has processes",
        "core/evolve_run.py",
        "        background=(),\n",
        "",
        _CORE,
    ),
    Mutation(
        "any number of processes runs",
        "tools/background.py",
        "if len(running) >= MAX_RUNNING:",
        "if len(running) >= 2 * MAX_RUNNING:",
        _TOOLS,
    ),
    Mutation(
        "a page does not say that a process has lost its network",
        "tools/background.py",
        "each.may_be_cut, each.is_cut = False, True",
        "each.may_be_cut = False",
        _TOOLS,
    ),
    Mutation(
        "a connection that the sandbox refused is taken for a folder that it does not show",
        "tools/within.py",
        "if fence is not None and is_barred(ended):",
        "if False:",
        "tests/tools/test_within.py",
    ),
    Mutation(
        "what is kept of a long output begins within a secret",
        "tools/background.py",
        "readable = begin + reach_of(redact) if begin else 0",
        "readable = begin",
        "tests/tools/test_cut_texts.py",
    ),
    Mutation(
        "the end of a secret is shown on a page that begins within it",
        "redact/part.py",
        "first, last = max(start - reach, 0),",
        "first, last = start,",
        _TOOLS,
    ),
    Mutation(
        "the beginning of a secret is shown before it is whole",
        "redact/part.py",
        "    if is_growing and last == len(text):",
        "    if False:",
        _TOOLS,
    ),
    Mutation(
        "a process that was stopped goes on",
        "tools/background.py",
        'left when this returns."""\n        await _end([process])\n',
        'left when this returns."""\n',
        _TOOLS,
    ),
    Mutation(
        "a reading does not wait for output",
        "tools/process.py",
        "            await process.news(seen, until_s - loop.time())\n",
        "            break\n",
        _TOOLS,
    ),
)
