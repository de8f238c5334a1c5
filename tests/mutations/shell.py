"""Promises about the reading of commands, and what may run without asking."""

from __future__ import annotations

from tests.mutations.bench import Mutation

READS = "tests/policy/test_shell.py"
JUDGES = "tests/policy/test_commands.py"

SHELL = (
    Mutation(
        "what does not follow the grammar is taken for read",
        "policy/shell.py",
        "        if root.has_error:\n",
        "        if False:\n",
        f"{READS} {JUDGES}",
    ),
    Mutation(
        "anything may lie between two words",
        "policy/shell_commands.py",
        "        if not _GAP.fullmatch(self._data, start, end):",
        "        if False:",
        READS,
    ),
    Mutation(
        "a `cd` in a subshell goes on after it",
        "policy/shell.py",
        "            self._statements(self._children(node), flow)\n        return Ways(flow, flow)\n",
        "            flow = self._statements(self._children(node), flow)\n        return Ways(flow, flow)\n",
        READS,
    ),
    Mutation(
        "a `cd` never fails",
        "policy/shell_flow.py",
        "    return Ways(Flow(folders, flow.is_known), flow)",
        "    return Ways(Flow(folders, flow.is_known), Flow(folders, flow.is_known))",
        READS,
    ),
    Mutation(
        "a variable of a subshell lives on",
        "policy/shell_flow.py",
        "            self._values, self._many = before",
        "            pass",
        READS,
    ),
    Mutation(
        "a text that was not understood runs under full autonomy",
        "policy/rules.py",
        "    why = _unread(facts)\n",
        '    why = "" if facts.autonomy == "full" else _unread(facts)\n',
        JUDGES,
    ),
    Mutation(
        "a file outside of the workspace is proved",
        "tools/named.py",
        "        elif not is_inside(self._workspace, real):",
        "        elif False:",
        JUDGES,
    ),
    Mutation(
        "a redirection may empty a file without asking",
        "tools/named.py",
        "        elif word.replaces and is_there and _has_content(real):",
        "        elif False:",
        JUDGES,
    ),
    Mutation(
        "a wildcard hides a secret",
        "tools/named.py",
        "            if secret_rule(path) or secret_rule(target):",
        "            if False:",
        JUDGES,
    ),
    Mutation(
        "a program that is not known slips by a rule",
        "policy/listed.py",
        '    if program.words[0] is None:\n        return "may"\n',
        '    if program.words[0] is None:\n        return ""\n',
        JUDGES,
    ),
    Mutation(
        "a redirection opens a connection",
        "policy/rules.py",
        "                if target.text.startswith(_SOCKETS):",
        "                if False:",
        JUDGES,
    ),
)
