"""Promises about secrets that a command reads without naming them plainly."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_READS = "tests/policy/test_covert_reads.py"

COVERT = (
    Mutation(
        "covertly, what finds files and what reads them have nothing to do with each other",
        "policy/words.py",
        "is_listed=not named.isdisjoint(simple.pipes))]",
        "is_listed=False)]",
        _READS,
    ),
    Mutation(
        "covertly, whatever finds files lets everything read them",
        "policy/words.py",
        "is_listed=not named.isdisjoint(simple.pipes))]",
        "is_listed=bool(named))]",
        _READS,
    ),
    Mutation(
        "covertly, a pipeline does not lead into another program",
        "policy/shell_plain.py",
        "        pipes = (count,) if len(pipeline) > 1 else ()\n",
        "        pipes = ()\n",
        _READS,
    ),
    Mutation(
        "covertly, what becomes words of a command is not read by it",
        "policy/shell_commands.py",
        "        with self._piped(0):\n",
        "        with self._piped(-1):\n",
        _READS,
    ),
    Mutation(
        "covertly, a name behind `-exec` picks what was found before",
        "policy/programs_search.py",
        "texts[at] not in _FIND_ACTS and ",
        "",
        _READS,
    ),
    Mutation(
        "covertly, an alternative without a name finds nothing",
        "policy/programs_search.py",
        '{*_FIND_ACTS, "(", ")"}.isdisjoint(others)',
        "_FIND_ACTS.isdisjoint(others)",
        _READS,
    ),
    Mutation(
        "covertly, a recursive copy reads nothing below",
        "policy/programs_files.py",
        'deep=deep if is_recursive else ""',
        'deep=""',
        _READS,
    ),
    Mutation(
        "covertly, `tar` always unpacks",
        "policy/programs_files.py",
        "if any(_TAR_UNPACKS.fullmatch(word.text) for word in words[:1]):",
        "if words:",
        _READS,
    ),
    Mutation(
        "covertly, a search that follows links stops at them",
        "tools/named.py",
        'follow_symlinks=word.deep == "links"',
        "follow_symlinks=False",
        _READS,
    ),
    Mutation(
        "covertly, git ignores what a line takes back",
        "tools/ignored.py",
        "                return False\n",
        "                continue\n",
        _READS,
    ),
    Mutation(
        "covertly, git goes on ignoring what the command lets it take up",
        "tools/named.py",
        "self._keeps_ignoring and is_ignored(",
        "is_ignored(",
        _READS,
    ),
    Mutation(
        "covertly, git knows every file that ends like one it knows",
        "tools/ignored.py",
        'return b"%s%s\\0" % (len(name).to_bytes(2, "big"), name) in index',
        'return b"%s\\0" % name.rpartition(b"/")[2] in index',
        _READS,
    ),
    Mutation(
        "covertly, no option of a shell lets a wildcard match a leading dot",
        "policy/words.py",
        "            yield word._replace(has_dots=True)\n",
        "            yield word\n",
        _READS,
    ),
    Mutation(
        "covertly, a word that is known in part matches nothing",
        "policy/words.py",
        "            if pattern != word.text and ",
        "            if not pattern and ",
        _READS,
    ),
    Mutation(
        "covertly, a script names no files",
        "policy/mentions.py",
        "    texts = _words(command, program) if is_unread or prints else ()\n",
        "    texts = ()\n",
        _READS,
    ),
    Mutation(
        "covertly, prose counts as much as a script",
        "policy/mentions.py",
        "        if not is_message and not (",
        "        if not (",
        _READS,
    ),
    Mutation(
        "covertly, a script writes no controlling file",
        "policy/mentions.py",
        'yield name, "write"',
        'yield name, "read"',
        _READS,
    ),
    Mutation(
        "covertly, an expansion becomes nothing",
        "policy/shell_words.py",
        'guess(text, self._value_of) if text.startswith("${") else ""',
        '""',
        _READS,
    ),
    Mutation(
        "covertly, a command runs only where it seems to",
        "policy/words.py",
        "simple.folders if simple.is_folder_known else everywhere",
        "simple.folders",
        _READS,
    ),
)
