"""Promises about what a program does with its words."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_TABLE = "tests/policy/test_programs.py"
_SHELL = "tests/policy/test_programs_shell.py"

PROGRAMS = (
    Mutation(
        "only the whole name of an option is that option",
        "policy/programs_options.py",
        "if key.startswith(name)]",
        "if key == name]",
        _TABLE,
    ),
    Mutation(
        "an option that the row does not have is harmless",
        "policy/programs_options.py",
        "    if reading.strange:\n",
        '    if reading.strange == "x":\n',
        _TABLE,
    ),
    Mutation(
        "what follows a letter in one word is not its value",
        "policy/programs_options.py",
        "        if (option.values or option.is_attached) and rest:\n",
        "        if option.is_attached and rest:\n",
        _TABLE,
    ),
    Mutation(
        "an operand too many is read",
        "policy/programs_options.py",
        'last if last.endswith("*") else ""',
        "last",
        _TABLE,
    ),
    Mutation(
        "a word that is known only when it runs is only text",
        "policy/programs_options.py",
        "    if any(not word.is_known for word in words):\n",
        "    if not words:\n",
        _TABLE,
    ),
    Mutation(
        "a name that a pattern matches is never an option",
        "tools/named.py",
        'path[len(real) :].lstrip("/").startswith("-")',
        "not path",
        "tests/policy/test_incidents.py",
    ),
    Mutation(
        "a program is what the end of its path says",
        "policy/programs.py",
        "if not slash or folder in _SYSTEM_FOLDERS",
        "if True",
        _TABLE,
    ),
    Mutation(
        "every flag of s in sed is plain",
        "policy/programs_search.py",
        'rf"[gpiIm0-9]*',
        'rf"[egpiIm0-9]*',
        _TABLE,
    ),
    Mutation(
        "every variable is free",
        "policy/programs_shell.py",
        "(name in _SAFE_VARIABLES or",
        '(name != "PATH" or',
        _SHELL,
    ),
    Mutation(
        "the words that xargs adds are known",
        "policy/programs_shell.py",
        'rest.append(Word("", is_known=False))',
        'rest.append(Word(""))',
        _SHELL,
    ),
    Mutation(
        "git runs in every folder",
        "policy/programs_git.py",
        "    if not command.is_folder_known or any(",
        "    if not command.is_folder_known and any(",
        "tests/policy/test_programs_git.py",
    ),
    Mutation(
        "a plain header may name another host",
        "policy/programs_net.py",
        "    if any(not word.text.lower().startswith(_PLAIN_HEADERS)",
        "    if any(not word.text",
        _SHELL,
    ),
)
