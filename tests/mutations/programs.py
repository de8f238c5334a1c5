"""Promises about what a program does with its words."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_TABLE = "tests/policy/test_programs.py"
_SHELL = "tests/policy/test_programs_shell.py"
_TRICKS = "tests/policy/test_tricks.py"

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
        "        if (option.values or option.is_attached) and not is_last:\n",
        "        if option.is_attached and not is_last:\n",
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
        "    if False in [word.is_known for word in words]:\n",
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
        "    if is_elsewhere or not command.is_folder_known:",
        "    if is_elsewhere and not command.is_folder_known:",
        "tests/policy/test_programs_git.py",
    ),
    Mutation(
        "a plain header may name another host",
        "policy/programs_net.py",
        "    if any(not word.text.lower().startswith(_PLAIN_HEADERS)",
        "    if any(not word.text",
        _SHELL,
    ),
    Mutation(
        "a letter after a number takes the next word",
        "policy/programs_options.py",
        "is_last and text[1].isdecimal() and at > 1)",
        "is_last and False)",
        _TRICKS,
    ),
    Mutation(
        "an option of a builtin may come after its operands",
        "policy/programs_shell.py",
        '_NAMES = Program(operands="text*", is_ordered=True)',
        '_NAMES = Program(operands="text*")',
        _TRICKS,
    ),
    Mutation(
        "an option of `git config` may come after its operands",
        "policy/programs_git.py",
        '--value= --regexp --url=",\n    is_ordered=True,',
        '--value= --regexp --url=",',
        _TRICKS,
    ),
    Mutation(
        "`jobs` runs nothing",
        "policy/programs_shell.py",
        ', runs="-x")',
        ")",
        _TRICKS,
    ),
    Mutation(
        "what a builtin reads into a variable is nothing",
        "policy/programs_shell.py",
        "word.is_known and name not in _FILL",
        "word.is_known",
        _TRICKS,
    ),
    Mutation(
        "a pattern after one that leaves files out picks all that is read",
        "policy/programs_options.py",
        " and choosing[0].option.name in row.picks",
        "",
        _TRICKS,
    ),
    Mutation(
        "what is picked by name is never hidden",
        "policy/programs_options.py",
        'return _Search("all", tuple(wanted) if is_plain else ())',
        "return _Search(program.searches, tuple(wanted) if is_plain else ())",
        _TRICKS,
    ),
    Mutation(
        "two folders are compared without what is in them",
        "policy/programs_git.py",
        'searches="all" if has_two else ""',
        'searches=""',
        _TRICKS,
    ),
    Mutation(
        "what follows links in a folder stays in it",
        "tools/named.py",
        '                if word.deep == "links" and entry.is_symlink():',
        "                if False:",
        _TRICKS,
    ),
    Mutation(
        "git talks to hosts only over http",
        "policy/programs_git.py",
        "    if (found := _REMOTE.match(word.text)) is None:\n",
        "    if (found := None) is None:\n",
        _TRICKS,
    ),
    Mutation(
        "awk prints only to its output",
        "policy/programs_search.py",
        '            case "|" | ">" if is_printing:\n                return False\n',
        "",
        _TABLE,
    ),
    Mutation(
        "a name that a pattern matches is a program of awk",
        "policy/programs_search.py",
        "(reading.operands[0].is_glob or not is_plain(reading.operands[0].text))",
        "not is_plain(reading.operands[0].text)",
        _TABLE,
    ),
    Mutation(
        "a pattern behind any option stays that option",
        "policy/programs_options.py",
        'each.option.name in row.chooses and each.option.meaning == "plain" for each in found',
        'each.option.meaning == "plain" for each in found',
        _TABLE,
    ),
    Mutation(
        "a range in braces is spelled out",
        "policy/shell_words.py",
        "any(piece.is_range for piece in pieces)",
        "is_range=False",
        "tests/policy/test_deleting.py",
    ),
)
