"""How the promises about hooks could be broken."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_CALLS = "tests/extensions/test_hooks_of_calls.py"
_SESSIONS = "tests/scenarios/test_hooks.py"
_FILES = "tests/config/test_hooks.py"

HOOKS = (
    Mutation(
        "arguments that a hook changed are not judged again",
        "tools/hooked.py",
        "        verdict = await passed(self.before, Case(proposal, case.spec))\n",
        "        verdict = await passed(self.before[:1], Case(proposal, case.spec))\n",
        _CALLS,
    ),
    Mutation(
        "a question is forgotten when a hook changes the arguments",
        "tools/hooked.py",
        "decisions=(*before, *fresh))",
        "decisions=verdict.decisions)",
        _CALLS,
    ),
    Mutation(
        "an earlier hook does not see what a later one made of the call",
        "tools/hooked.py",
        "            if all(seen[hook.name] == case.canonical for hook in asked):\n",
        "            if True:\n",
        _CALLS,
    ),
    Mutation(
        "hooks may change arguments for ever",
        "protocol/hooks.py",
        "ROUNDS = 3\n",
        "ROUNDS = 30\n",
        _CALLS,
    ),
    Mutation(
        "an unknown key in a hook's answer is ignored",
        "extensions/hooks.py",
        "        if key not in _KEYS:\n",
        "        if False:\n",
        _CALLS,
    ),
    Mutation(
        "a hook of a journal is run without looking at what it is",
        "extensions/hooks.py",
        "        if source.hook.digest != hook.digest:\n",
        "        if False:\n",
        _CALLS,
    ),
    Mutation(
        "the reason of a hook is not masked",
        "extensions/hooks.py",
        "clean(self._redact(answer.reason))[:REASON_CHARS]",
        "clean(answer.reason)[:REASON_CHARS]",
        _CALLS,
    ),
    Mutation(
        "a hook inherits the whole environment",
        "extensions/hook_commands.py",
        "for name in _NAMES if name in environ}",
        "for name in environ}",
        _CALLS,
    ),
    Mutation(
        "a hook that answers too much is believed",
        "extensions/hook_commands.py",
        "    if ended.output_bytes > MOST_BYTES:\n",
        "    if False:\n",
        _CALLS,
    ),
    Mutation(
        "a project's hook needs no trust",
        "config/keys.py",
        '    Key("hooks.*.command", program(), "The program and its arguments.", project="trust"),\n',
        '    Key("hooks.*.command", program(), "The program and its arguments.", "tighten", len),\n',
        f"{_FILES} tests/config/test_project.py",
    ),
    Mutation(
        "a later file changes a hook of the administrator",
        "config/load.py",
        '            if source.layer != "project" and (taken := owned.taken(given, number, source)):\n',
        "            if False and (taken := owned.taken(given, number, source)):\n",
        _FILES,
    ),
    Mutation(
        "a stop waits for all that hooks have not heard",
        "core/hooking.py",
        'told = () if event.status == "interrupted" else hooking.told',
        "told = hooking.told",
        _SESSIONS,
    ),
    Mutation(
        "a hook's question about a model call lets it through",
        "core/hook_answers.py",
        'is_denied = decides and answer.verdict in ("deny", "ask")',
        'is_denied = decides and answer.verdict == "deny"',
        _SESSIONS,
    ),
    Mutation(
        "a hook that is only told may end the run",
        "core/hooking.py",
        "    return event in DECIDED\n",
        "    return True\n",
        _SESSIONS,
    ),
    Mutation(
        "a cancelled hook counts as one that failed",
        "core/hook_answers.py",
        "    if action is None or answer.is_cut:\n",
        "    if action is None:\n",
        "tests/core/test_hooks.py",
    ),
    Mutation(
        "a hook changes arguments again after a crash",
        "core/evolve.py",
        "arguments=call.written or call.arguments,",
        "arguments=call.arguments,",
        _SESSIONS,
    ),
    Mutation(
        "a secret that a hook puts into arguments is stored",
        "runtime/originals.py",
        "        if change := next(filter(_is_change, admission.decisions), None):\n",
        "        if False and (change := next(filter(_is_change, admission.decisions), None)):\n",
        _SESSIONS,
    ),
    Mutation(
        "a branch tells the hooks what its parent tells them",
        "core/hooking.py",
        "            hooking = Hooking(asked=hooking.asked)\n",
        "            pass\n",
        "tests/core/test_hooks.py",
    ),
    Mutation(
        "a branch goes on without the hooks that its parent waits for",
        "core/hooking.py",
        "            hooking = Hooking(asked=hooking.asked)\n",
        "            hooking = NOTHING\n",
        "tests/core/test_hooks.py",
    ),
    Mutation(
        "a package is loaded because it is installed",
        "extensions/factories.py",
        "        return name in self._own.get(kind, {}) or name in self._found(kind)\n",
        "        return bool(self.find(kind, name))\n",
        "tests/extensions/test_hook_functions.py",
    ),
    Mutation(
        "an agent may change the program of a hook",
        "policy/rules.py",
        "    hook_programs,\n",
        "",
        _FILES,
    ),
    Mutation(
        "a hook has no more time than a prepare step",
        "runtime/prepare.py",
        "            limit_s += longest_s(",
        "            longest_s(",
        "tests/scenarios/test_hooks.py",
    ),
    Mutation(
        "the detail of a failure to prepare a step has no bound",
        "runtime/prepare.py",
        "(traceback.format_exception(error)))[-MAX_DETAIL_CHARS:]",
        "(traceback.format_exception(error)))",
        "tests/scenarios/test_slow_steps.py",
    ),
    Mutation(
        "a step that is too late does not say how long it took",
        "runtime/prepare.py",
        'raise Left(f"It took longer than {limit_s:g} s.") from None',
        "raise",
        "tests/scenarios/test_slow_steps.py",
    ),
)
