"""Programs with a language of their own: sed, awk and jq.

A text in such a language is read as far as is easy. Whatever is not read makes a person look; the files and commands
that it names plainly count, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from holdfast.policy.programs_options import (
    Program,
    Reading,
    doubts,
    operand_uses,
    reading_of,
    shown,
    uses_by_row,
)
from holdfast.policy.programs_text import READERS
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import Reader, Use, Uses, merged, unknown

# --- sed ------------------------------------------------------------------------------------------

_SED = Program(
    operands="text read*",
    plain="-n -E -r -s -u -z -l= -b -e= -i? --quiet --silent --regexp-extended --separate "
    "--unbuffered --null-data --line-length= --expression= --posix --debug --sandbox --binary --in-place?",
    reads="-f= --file=",
    asks="--follow-symlinks",
    stands_in="-e --expression -f --file",
)
_SED_BLANKS = re.compile(r"[ \t;\n{}]*")
_SED_PLACE = r"(?:{}\d+|\$|/(?:[^/\\\n]|\\[^\n])*/[IM]*)"
_SED_ADDRESS = re.compile(
    rf"{_SED_PLACE.format('')}(?:~\d+)?(?:[ \t]*,[ \t]*{_SED_PLACE.format('[+~]?')})?[ \t]*"
)
_SED_END = r"(?=[ \t]*(?:[;}\n]|\Z))"
_SED_COMMAND = re.compile(
    rf"!?[ \t]*(?:[pPdDhHgGxnNlFz=]{_SED_END}|[qQ][ \t]*\d*{_SED_END}|[:btT][ \t]*\w*{_SED_END}"
    r"|(?P<text>[sy])(?P<by>[!-/:-@\[\]^`{-~]))"
)
_SED_FLAGS = re.compile(rf"[gpiIm0-9]*{_SED_END}")
_SED_LAST_FLAG = re.compile(r"[gpiIm0-9]*([we])[ \t]*([^\n]*)")
_SED_ACT = re.compile(r"!?[ \t]*([rRwWeaic])[ \t]*((?:[^\\\n]|\\[\s\S])*)")


def uses_of_sed(command: SimpleCommand, name: str) -> Uses:
    """Return what `sed` does: its script is read, and only one that changes the text is known."""
    words = command.words[1:]
    reading = reading_of(_SED, words)
    scripts = reading.values("-e", "--expression")
    files = reading.operands
    if not reading.has(*_SED.stands_in.split()):
        scripts, files = (*scripts, *files[:1]), files[1:]
    uses = [uses_by_row(name, _SED, words)]
    if reading.has("-f", "--file"):
        uses.append(unknown(f"`{name}` runs a script in a file."))
    unread = next((word.text for word in scripts if _is_open(word) or not is_plain_sed(word.text)), "")
    if unread:
        uses.append(
            unknown(f"The script `{shown(unread)}` of `{name}` may run a program or use other files.")
        )
        uses += [_done_by(name, *act) for word in scripts if word.is_known for act in _acts_of_sed(word.text)]
    if reading.has("-i", "--in-place"):
        endings = reading.values("-i", "--in-place")
        uses.append(Uses(tuple([_edited(word, ending) for word in files for ending in (Word(""), *endings)])))
        if any("/" in word.text or "*" in word.text for word in endings):
            uses.append(Uses(asks=f"`{name}` copies the old file to another folder."))
    return merged(uses)


def _edited(file: Word, ending: Word) -> Use:
    return Use("write", file._replace(text=f"{file.text}{ending.text}"), overwrites=True)


def is_plain_sed(script: str) -> bool:
    """Return whether a script of `sed` consists of commands that change nothing but the text."""
    return next(_acts_of_sed(script), None) is None


def _acts_of_sed(script: str) -> Iterator[tuple[str, str]]:
    """Return what else a script of `sed` does: `r` and `w` with a file, `e` with a command, and an empty letter where
    it is not read any further.
    """
    at = 0
    while True:
        blanks = _SED_BLANKS.match(script, at)
        at = blanks.end() if blanks else at
        if at == len(script):
            return
        if address := _SED_ADDRESS.match(script, at):
            at = address.end()
            if script.startswith("{", at):
                continue
        found = _SED_COMMAND.match(script, at)
        if found is not None and not found["text"]:
            at = found.end()
            continue
        if found is not None:
            end = _after_parts(script, found.end(), found["by"])
            if end >= 0 and (flags := _SED_FLAGS.match(script, end)):
                at = flags.end()
                continue
            act = _SED_LAST_FLAG.match(script, end) if end >= 0 else None
        else:
            act = _SED_ACT.match(script, at)
        if act is None:
            yield "", ""
            return
        yield act[1].casefold() if act[1] in "rRwWe" else "", act[2].strip()
        at = act.end()


def _after_parts(script: str, at: int, by: str) -> int:
    """Return where the flags of `s` or `y` begin; -1 if a part does not end."""
    for _ in range(2):
        while at < len(script) and script[at] != by:
            at += 2 if script[at] == "\\" else 1
        at += 1
    return at if at <= len(script) else -1


def _done_by(name: str, how: str, what: str) -> Uses:
    """Return what a text does with a file that it names, or with a command."""
    word = Word(what)
    if not what or not how:
        return Uses()
    if how == "e":
        return Uses(scripts=(word,))
    return operand_uses(name, "read" if how == "r" else "write", word)


# --- awk and jq -----------------------------------------------------------------------------------

_AWK = Program(
    operands="text read*", plain="-F= -v= --field-separator= --assign=", reads="-f= --file=", is_ordered=True
)
_MOST_VALUES, _MOST_VALUE_CHARS, _MOST_CHARS = 8, 400, 32_768
_AWK_ACTS = re.compile(r"@|system|getline|close|ARG|SYMTAB|include|load|\\\r?\n")
_AWK_ACT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|print|getline|system|[;}\n]|>>?|<|\|&?')
_AWK_TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|print|[;}|>/#"\\]')
_JQ_LOADS = re.compile(r"\b(?:import|include|modulemeta|input_filename|get_search_list)\b")


def uses_of_awk(command: SimpleCommand, name: str) -> Uses:
    """Return what `awk` does. A program that could open or run anything is not known."""
    return _with_program(command, name, _AWK, is_plain_awk, _acts_of_reading)


def _acts_of_reading(reading: Reading) -> Iterator[tuple[str, str]]:
    return _acts_of_awk(_with_values(reading))


def _with_values(reading: Reading) -> str:
    """Return the program with the values of the variables that the command sets, in their places."""
    program = reading.operands[0].text
    for word in (*reading.values("-v", "--assign"), *reading.operands[1:])[:_MOST_VALUES]:
        name, equals, value = word.text.partition("=")
        if equals and word.is_known and name.isidentifier() and len(value) <= _MOST_VALUE_CHARS:
            literal = f'"{value}"'.replace("\\", "\\\\")
            program = re.sub(rf"\b{name}\b", literal, program)[:_MOST_CHARS]
    return program


def is_plain_awk(program: str) -> bool:
    """Return whether a program of `awk` opens and runs nothing. `<` does so only with `getline`, and `>` and `|` only
    at the end of a `print`: before the first one, and after it has ended, they compare.
    """
    if _AWK_ACTS.search(program):
        return False
    is_printing = False
    for token in _AWK_TOKEN.finditer(program):
        match token[0]:
            case "print":
                is_printing = True
            case ";" | "}":
                is_printing = False
            case "|" | ">" if is_printing:
                return False
            case "/" | "#" | '"' | "\\":  # from here on, it is not clear what is in quotes
                rest = program[token.start() :]
                printed = rest if is_printing else rest.partition("print")[2]
                return "|" not in printed and ">" not in printed
            case _:
                pass
    return True


def _acts_of_awk(program: str) -> Iterator[tuple[str, str]]:
    """Return the files that a program of `awk` names as a whole, with `r` or `w`, and its commands, with `e`."""
    is_printing, operator, end, before = False, "", 0, ""
    for token in _AWK_ACT.finditer(program):
        text = token[0]
        if text[0] == '"':
            literal = text[1:-1].replace('\\"', '"')
            is_whole = not program[end : token.start()].strip(" \t(")
            if is_whole and (operator[:1] != ">" or is_printing):
                yield {">": "w", "<": "r", "|": "e", "s": "e"}.get(operator[:1], ""), literal
            operator, before = "", literal
        elif text in ("print", ";", "}", "\n"):
            is_printing, operator = text == "print", ""
        elif text == "getline":
            if operator[:1] == "|":
                yield "e", before
            operator = ""
        else:
            operator, end = text, token.end()


def uses_of_jq(command: SimpleCommand, name: str) -> Uses:
    """Return what `jq` does. A filter that loads others is not known."""
    return _with_program(command, name, READERS["jq"], lambda text: not _JQ_LOADS.search(text))


def _with_program(
    command: SimpleCommand,
    name: str,
    program: Program,
    is_plain: Callable[[str], bool],
    acts_of: Callable[[Reading], Iterator[tuple[str, str]]] = lambda reading: iter(()),
) -> Uses:
    words = command.words[1:]
    reading = reading_of(program, words)
    uses = [uses_by_row(name, program, words)]
    if reading.has("-f", "--file", "--from-file"):
        uses.append(unknown(f"`{name}` runs a program in a file."))
    elif reading.operands and (_is_open(reading.operands[0]) or not is_plain(reading.operands[0].text)):
        uses.append(unknown(f"The program of `{name}` may run something or use other files."))
        if reading.operands[0].is_known:
            uses += [_done_by(name, *act) for act in acts_of(reading)]
    return merged([*uses, doubts(name, program, words, reading)])


def _is_open(word: Word) -> bool:
    """Return whether a word may become the name of a file, which would be read as a program."""
    return word.is_glob or word.found is not None


LANGUAGE_READERS: Mapping[str, Reader] = {
    "sed": uses_of_sed,
    "jq": uses_of_jq,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), uses_of_awk),
}
