"""The words that a shell itself understands, programs that run the command that follows them, and other shells."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from holdfast.policy.programs_found import words_from
from holdfast.policy.programs_options import Program, reading_of, shown, uses_by_row
from holdfast.policy.programs_settings import uses_of_value
from holdfast.policy.protected import is_matched
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import NOTHING, Reader, Use, Uses, merged, unknown
from holdfast.protocol.launchers import PRIVILEGED

# --- variables ------------------------------------------------------------------------------------

_SAFE_VARIABLES = frozenset(
    {
        "LANG",
        "LANGUAGE",
        "TZ",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "TERM",
        "COLUMNS",
        "LINES",
        "CI",
    }
)
_PAGERS = frozenset({"PAGER", "GIT_PAGER", "MANPAGER"})
_OWN_NAME = re.compile(r"[a-z_][a-z0-9_]*|[A-Z]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_FILL = frozenset({"read", "mapfile", "readarray", "printf"})
"""Builtins that give a variable a value which is known only when they run."""


def uses_of_variable(name: str, value: Word) -> Uses:
    """Return why a person must look at setting a variable: programs read many, and some make them run code."""
    done = uses_of_value(name, value)
    if done is NOTHING and _OWN_NAME.fullmatch(name) and not name.endswith("_proxy"):
        return done  # the command's own: no program reads it
    is_plain = value.is_known and "/" not in value.text and not value.is_glob
    if is_plain and (name in _SAFE_VARIABLES or name.startswith("LC_")):
        return Uses()
    if is_plain and name in _PAGERS and value.text in ("", "cat"):
        return Uses()
    return merged([unknown(f"The variable `{shown(name)}` may change what programs do."), done])


def _set_by(words: Sequence[Word], name: str) -> Iterator[Uses]:
    """Return what a builtin does that sets the variables which its words name, as `NAME` or `NAME=VALUE`."""
    for word in words:
        variable, equals, value = word.text.partition("=")
        if not word.is_known and not (equals and _NAME.fullmatch(variable)):
            yield Uses(asks=f"A word of `{name}` is known only when it runs.")
        elif not _NAME.fullmatch(variable.removesuffix("+")):
            yield unknown(f"`{name}` may run what is written in `{shown(variable)}`.")
        else:
            is_known = word.is_known and name not in _FILL
            yield uses_of_variable(variable.removesuffix("+"), Word(value, is_known, word.is_glob))


# --- builtins -------------------------------------------------------------------------------------

_BUILTINS: Mapping[str, Program] = {
    ":": Program(operands="text*"),
    "true": Program(operands="text*"),
    "false": Program(operands="text*"),
    "exit": Program(operands="text*"),
    "return": Program(operands="text*"),
    "break": Program(operands="text*"),
    "continue": Program(operands="text*"),
    "shift": Program(operands="text*"),
    "wait": Program(operands="text*", plain="-n -f", asks="-p="),
    "jobs": Program(operands="text*", plain="-l -n -p -r -s", runs="-x"),
    "times": Program(operands=""),
    "umask": Program(operands="text*", plain="-p -S"),
    "ulimit": Program(
        operands="text*",
        plain="-a -S -H -b -c -d -e -f -i -k -l -m -n -p -q -r -s -t -u -v -x -P -R -T",
    ),
    "type": Program(operands="text*", plain="-a -f -t -p -P"),
    "caller": Program(operands="text*"),
    "pwd": Program(operands="", plain="-L -P --logical --physical"),
    "dirs": Program(operands="text*", plain="-c -l -p -v"),
    "cd": Program(plain="-L -P -e"),
    "pushd": Program(plain="-n"),
    "popd": Program(operands="text*", plain="-n"),
    "hash": Program(operands="text*", plain="-r -l -t -d", runs="-p="),
    "shopt": Program(operands="text*", plain="-p -q", asks="-s -u -o"),
}
BUILTINS: Mapping[str, Program] = {name: row._replace(is_ordered=True) for name, row in _BUILTINS.items()}
"""The options of a builtin end at its first operand."""
_RUNS_WORDS = frozenset(
    {"alias", "enable", "complete", "compopt", "bind", "let", "fc", "history", "coproc", "source",
     ".", "help", "suspend", "logout", "disown", "bg", "fg", "getopts", "unalias"}
)  # fmt: skip
_RUNS_UNKNOWN = frozenset({"source", ".", "let"})
"""Those of them that leave alone what later words mean."""
_NAMES = Program(operands="text*", is_ordered=True)
_DECLARES = _NAMES.also(plain="-p -x -a -A -g -t -I", asks="-n -i -f -F -l -u -r -c")
_READ = _NAMES.also(plain="-r -s -p= -n= -N= -t= -d= -u= -e", asks="-i= -a=")
_MAPFILE = _NAMES.also(plain="-d= -n= -O= -s= -t -u= -c=", runs="-C=")
_UNSET = _NAMES.also(plain="-v", asks="-f -n")
_SET_OPTIONS = frozenset({"pipefail", "errexit", "nounset", "xtrace", "noglob", "noclobber", "verbose"})
_SET_FLAGS = re.compile(r"[-+][euxfvnC]*o?")
_SETS_BY_FORMAT = re.compile(r"%[^A-Za-z%]*[hlLjztq]*n")
"""What makes `printf` set a variable, whatever flags are before the letter."""


def _runs_words(command: SimpleCommand, name: str) -> Uses:
    why = f"`{name}` runs words, or changes what they mean."
    return unknown(why) if name in _RUNS_UNKNOWN else Uses(asks=why)


_COMPGEN = _NAMES.also(
    plain="-a -b -c -d -e -f -g -j -k -s -u -v -G= -A= -W= -P= -S= -X= -o=", runs="-F= -C="
)


def _compgen(command: SimpleCommand, name: str) -> Uses:
    """Return the folder whose names `compgen` prints. It may run a function."""
    reading = reading_of(_COMPGEN, command.words[1:])
    found = [Use("read", word._replace(is_glob=True)) for word in reading.values("-G")]
    if reading.has("-f", "-d", "-A", "-o"):
        folder = posixpath.dirname("".join([word.text for word in reading.operands[:1]])) or "."
        found.append(Use("read", Word(folder), deep="all", is_listed=True))
    return merged([Uses(tuple(found)), _runs_words(command, name)])


def _echo(command: SimpleCommand, name: str) -> Uses:
    return Uses(tuple([Use("read", word) for word in command.words[1:] if word.is_glob]))


def _printf(command: SimpleCommand, name: str) -> Uses:
    words = command.words[1:]
    if words and words[0].text.startswith("-v"):
        named = [words[0]._replace(text=words[0].text[2:])] if len(words[0].text) > 2 else words[1:2]
        return merged(_set_by(named, name))
    text = (
        words[1].text
        if words and words[0].text == "--" and len(words) > 1
        else words[0].text
        if words
        else ""
    )
    if not all(word.is_known for word in words[:2]) or _SETS_BY_FORMAT.search(text.replace("%%", "")):
        return unknown(f"`{name}` may set a variable.")
    return _echo(command, name)


def _set(command: SimpleCommand, name: str) -> Uses:
    words = [word.text for word in command.words[1:]]
    at = 0
    while at < len(words) and words[at] != "--" and words[at][:1] in ("-", "+"):
        is_named = words[at].endswith("o")
        if not _SET_FLAGS.fullmatch(words[at]) or (
            is_named and not set(words[at + 1 : at + 2]) <= _SET_OPTIONS
        ):
            return Uses(asks=f"`{name} {shown(words[at])}` may change what the shell does.")
        at += 2 if is_named else 1
    return (
        Uses()
        if all(word.is_known for word in command.words)
        else Uses(asks=f"A word of `{name}` is not known.")
    )


def _setter(program: Program) -> Reader:
    def uses(command: SimpleCommand, name: str) -> Uses:
        words = command.words[1:]
        return merged(
            [uses_by_row(name, program, words), *_set_by(reading_of(program, words).operands, name)]
        )

    return uses


def _eval(command: SimpleCommand, name: str) -> Uses:
    words = command.words[1:]
    if not all(word.is_known for word in words) or any(word.is_glob for word in words):
        return Uses(asks=f"What `{name}` runs is known only when it runs.")
    return Uses(scripts=(Word(" ".join(word.text for word in words)),))


def _trap(command: SimpleCommand, name: str) -> Uses:
    words = command.words[1:]
    if not words or words[0].text in ("-", "-l", "-p", ""):
        return Uses()
    return Uses(scripts=words[1:2] if words[0].text == "--" else words[:1])


# --- test -----------------------------------------------------------------------------------------

_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprstuwxGLNOS")
_COMPARES_FILES = frozenset({"-nt", "-ot", "-ef"})
_COMPARES_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NUMBER = re.compile(r"[-+]?[0-9]+")


def _test(command: SimpleCommand, name: str) -> Uses:
    """Return what `test`, `[` and `[[` look at. A subscript in a variable's name is evaluated, and may run code."""
    words = command.words[1:]
    asks = "" if all(word.is_known for word in words) else f"A word of `{name}` is known only when it runs."
    files: list[Use] = []
    for at, word in enumerate(words):
        beside = words[at + 1 : at + 2]
        if word.is_glob and name != "[[":
            files.append(Use("read", word))
            if any(is_matched(each, word.text) for each in ("-v", "-R")):
                asks = asks or f"`{shown(word.text)}` may become an operator of `{name}` that runs code."
        if word.text in _FILE_TESTS:
            files += [Use("read", each) for each in beside]
        elif word.text in _COMPARES_FILES:
            files += [Use("read", each) for each in (*words[max(at - 1, 0) : at], *beside)]
        elif word.text in ("-v", "-R") and not all(_NAME.fullmatch(each.text) for each in beside):
            asks = asks or f"`{name} {word.text}` may run what is written in the name."
        elif (
            word.text in _COMPARES_NUMBERS
            and name == "[["
            and not _are_numbers(words[max(at - 1, 0) : at + 2])
        ):
            asks = asks or f"`{name}` computes the words beside `{word.text}`, which may run code."
    return Uses(tuple(files), asks=asks, is_unknown=bool(asks))


def _are_numbers(compared: Sequence[Word]) -> bool:
    return all(_NUMBER.fullmatch(each.text) for each in compared[::2])


# --- wrappers -------------------------------------------------------------------------------------


_WRAPPERS: Mapping[str, tuple[Program, int]] = {
    "nohup": (Program(), 0),
    "time": (
        Program(
            plain="-p -v -q -f= -a --portability --verbose --format= --append --quiet", writes="-o= --output="
        ),
        0,
    ),
    "nice": (Program(plain="-n= --adjustment=", has_numbers=True), 0),
    "ionice": (
        Program(plain="-c= -n= -t --class= --classdata= --ignore", asks="-p= -P= -u= --pid= --pgid= --uid="),
        0,
    ),
    "timeout": (
        Program(plain="-s= -k= -v -f -p --signal= --kill-after= --verbose --foreground --preserve-status"),
        1,
    ),
    "stdbuf": (Program(plain="-i= -o= -e= --input= --output= --error="), 0),
    "setsid": (Program(plain="-c -f -w --ctty --fork --wait"), 0),
    "command": (Program(plain="-p -v -V"), 0),
    "builtin": (Program(), 0),
    "exec": (Program(plain="-c -l", asks="-a="), 0),
}
"""The options of each, and how many operands come before the command."""
_XARGS = Program(
    plain="-0 -r -t -x -n= -L= -l? -P= -s= -d= -E= -e? -i? -I= --null --no-run-if-empty --verbose "
    "--exit --max-args= --max-lines? --max-procs= --max-chars= --delimiter= --eof? --replace?",
    reads="-a= --arg-file=",
    asks="-p -o --interactive --open-tty --process-slot-var= --show-limits",
    is_ordered=True,
)
_ENV = Program(
    plain="-i -0 -v -u= --ignore-environment --null --debug --unset= --list-signal-handling",
    reads="-C= --chdir=",
    asks="-P= --default-signal? --ignore-signal? --block-signal? -a= --argv0=",
    is_ordered=True,
)
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./=:,+@% -]*")


def _inner(
    command: SimpleCommand, words: Sequence[Word], assigned: tuple[tuple[str, Word], ...] = ()
) -> SimpleCommand:
    return SimpleCommand(tuple(words), assigned, (), command.folders, command.is_folder_known)


def _wrapper(command: SimpleCommand, name: str) -> Uses:
    row, own = _WRAPPERS[name]
    program = row._replace(operands="text*", is_ordered=True)
    words = command.words[1:]
    reading = reading_of(program, words)
    rest = reading.operands[own:]
    found = uses_by_row(name, program, words[: len(words) - len(rest)])
    if name == "command" and reading.has("-v", "-V"):
        return found
    return merged([found, Uses(inner=(_inner(command, rest),))]) if rest else found


def _xargs(command: SimpleCommand, name: str) -> Uses:
    """Return what `xargs` runs. The words that it adds are known only when it runs."""
    words = command.words[1:]
    reading = reading_of(_XARGS, words)
    own = words[: len(words) - len(reading.operands)]
    found = uses_by_row(name, _XARGS._replace(operands="text*"), own)
    mark = "".join(word.text for word in reading.values("-I", "-i", "--replace")[-1:])
    is_marked = reading.has("-I", "-i", "--replace")
    given = words_from(command, reading)
    rest: list[Word] = []
    for word in reading.operands:
        if is_marked and given and word.text == mark:
            rest += given
        else:
            is_unknown = is_marked and (mark or "{}") in word.text
            rest.append(word._replace(is_known=False) if is_unknown else word)
    if not rest:
        return found
    inner = _inner(command, rest)
    if not is_marked:
        more = inner._replace(words=(*inner.words, *(given or (Word("", is_known=False),))))
        return merged([found, Uses(inner=(more, inner) if given else (more,))])  # it may have nothing to add
    return merged([found, Uses(inner=(inner,))])


def _env(command: SimpleCommand, name: str) -> Uses:
    """Return what `env` runs, with the variables that it sets. It may show them: none of them is private."""
    words = command.words[1:]
    split = next((at for at, word in enumerate(words) if _is_split(word.text)), -1)
    if split >= 0:
        return _split_env(command, name, split)
    reading = reading_of(_ENV, words)
    rest = list(reading.operands)
    found = [uses_by_row(name, _ENV._replace(operands="text*"), words[: len(words) - len(rest)])]
    assigned: list[tuple[str, Word]] = []
    while rest and "=" in rest[0].text:
        variable, _, value = rest[0].text.partition("=")
        assigned.append((variable, rest.pop(0)._replace(text=value)))
    if folders := reading.values("-C", "--chdir"):
        found.append(Uses(asks=f"`{name}` runs a command in the folder `{shown(folders[-1].text)}`."))
    found.append(Uses(inner=(_inner(command, rest, tuple(assigned)),)) if rest else Uses())
    return merged(found)


def _is_split(text: str) -> bool:
    return text.startswith(("--s", "-S")) or (text[:1] == "-" and text[:2] != "--" and "S" in text)


def _split_env(command: SimpleCommand, name: str, at: int) -> Uses:
    """Return what `env -S` runs. It has quotes and variables of its own; only plain words are known."""
    word = command.words[1 + at]
    flag, equals, text = word.text.partition("=") if word.text.startswith("--") else word.text.partition("S")
    following = command.words[2 + at :]
    if not text and following and not (word.text.startswith("--") and equals):
        text, following = following[0].text, following[1:]
    text = text.replace("\\_", " ")
    asks = f"`{name}` splits a text into words."
    if at or flag not in ("-", "--split-string") or not _PLAIN_WORDS.fullmatch(text):
        return Uses(asks=asks)
    again = (*command.words[:1], *map(Word, text.split()), *following)
    return merged([Uses(asks=asks), _env(command._replace(words=again), name)])


def _privileged(command: SimpleCommand, name: str) -> Uses:
    words = command.words[1:]
    start = next((at for at, word in enumerate(words) if word.text[:1] != "-"), len(words))
    inner = (_inner(command, words[start:]),) if words[start:] else ()
    return Uses(inner=inner, denies=f"`{name}` takes the rights of another user.")


def _many_programs(command: SimpleCommand, name: str) -> Uses:
    """Return what a file does that is many programs. They have fewer options than those of the table."""
    inner = (_inner(command, command.words[1:]),) if command.words[1:] else ()
    return Uses(inner=inner, asks=f"`{name}` has programs of its own.")


# --- shells ---------------------------------------------------------------------------------------

_SHELL = Program(
    operands="text*",
    plain="-c -l -e -u -x -f -v -n -r -p -o= --norc --noprofile --posix --login",
    asks="-i -s -O= -a -m -b -B -E -H -P -T -D --rcfile= --init-file= --restricted --debugger "
    "--dump-strings --verbose",
    is_ordered=True,
)


def _shell(command: SimpleCommand, name: str) -> Uses:
    """Return the script that a shell is given. Only bash and its like read it as the parser does."""
    words = command.words[1:]
    reading = reading_of(_SHELL, words)
    found = [uses_by_row(name, _SHELL, words[: len(words) - len(reading.operands)])]
    if not reading.has("-c") or not reading.operands:
        return merged([*found, unknown(f"`{name}` runs a script that is not shown.")])
    script = reading.operands[0]
    if name not in ("sh", "bash", "dash", "ash", "rbash"):
        found.append(unknown(f"`{name}` reads its scripts in its own way."))
    if not script.is_known or script.is_glob:
        return merged([*found, Uses(asks=f"What `{name}` runs is known only when it runs.")])
    if reading.has("-o") and not {word.text for word in reading.values("-o")} <= _SET_OPTIONS:
        found.append(Uses(asks=f"An option of `{name}` changes how it reads its script."))
    return merged([*found, Uses(scripts=(script,))])


SHELL_READERS: Mapping[str, Reader] = {
    "echo": _echo,
    "printf": _printf,
    "set": _set,
    "eval": _eval,
    "trap": _trap,
    "export": _setter(_DECLARES),
    "declare": _setter(_DECLARES),
    "typeset": _setter(_DECLARES),
    "local": _setter(_DECLARES),
    "readonly": _setter(_DECLARES),
    "read": _setter(_READ),
    "mapfile": _setter(_MAPFILE),
    "readarray": _setter(_MAPFILE),
    "unset": _setter(_UNSET),
    "compgen": _compgen,
    "xargs": _xargs,
    "env": _env,
    **dict.fromkeys(("test", "[", "[["), _test),
    **dict.fromkeys(_WRAPPERS, _wrapper),
    **dict.fromkeys(_RUNS_WORDS, _runs_words),
    **dict.fromkeys(PRIVILEGED, _privileged),
    **dict.fromkeys(("busybox", "toybox"), _many_programs),
    **dict.fromkeys(
        ("sh", "bash", "dash", "ash", "rbash", "zsh", "ksh", "mksh", "yash", "fish", "csh", "tcsh"), _shell
    ),
}
