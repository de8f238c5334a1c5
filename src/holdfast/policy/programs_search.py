"""Programs that search files and their content: find, fd, rg and their kin.

The expression of `find` is read as far as is easy. Whatever is not read makes a person look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile

from holdfast.policy.programs_options import (
    Program,
    is_plain_pattern,
    operand_uses,
    shown,
)
from holdfast.policy.programs_text import GREP
from holdfast.policy.simple import Found, SimpleCommand, Word
from holdfast.policy.uses import LOOKS_AT_NAMES, Depth, Reader, Use, Uses, merged

_FD = Program(
    operands="text read*",
    plain="-H -I -u -s -i -g -F -a -p -d= -t= -e= -E= -S= -o= -0 -1 -q -c= -j= --hidden --no-ignore "
    "--no-ignore-vcs --no-ignore-parent --unrestricted --case-sensitive --ignore-case --glob --regex "
    "--fixed-strings --absolute-path --relative-path --full-path --max-depth= --min-depth= --exact-depth= "
    "--exclude= --prune --type= --extension= --size= --changed-within= --changed-before= --owner= "
    "--format= --print0 --max-results= --quiet --show-errors --color= --threads= --strip-cwd-prefix? "
    "--one-file-system --and= --no-require-git",
    reads="--search-path= --ignore-file=",
    runs="-x -X -l --exec --exec-batch --list-details",
    asks="-L --follow -C= --base-directory=",
    without=".",
    searches="visible",
    links="-L --follow",
    everything="-H --hidden -u --unrestricted",
    is_listing=True,
)

SEARCHERS: Mapping[str, Program] = {
    "rg": Program(
        operands="text read*",
        plain="-e= -F -i -S -s -v -w -x -c -l -n -N -o -q -H -I -h -p -a -u -U -P -0 -b -A= -B= -C= "
        "-M= -m= -r= -t= -T= -g= -j= -E= -d= -. --regexp= --fixed-strings --ignore-case --smart-case "
        "--case-sensitive --invert-match --word-regexp --line-regexp --count --count-matches --files "
        "--files-with-matches --files-without-match --line-number --no-line-number --only-matching "
        "--quiet --with-filename --no-filename --heading --no-heading --pretty --text --unrestricted "
        "--multiline --multiline-dotall --pcre2 --null --byte-offset --after-context= --before-context= "
        "--context= --max-columns= --max-columns-preview --max-count= --replace= --type= --type-not= "
        "--type-list --type-add= --type-clear= --glob= --iglob= --threads= --encoding= --max-depth= "
        "--maxdepth= --max-filesize= --hidden --no-hidden --no-ignore --no-ignore-vcs --no-ignore-parent "
        "--no-ignore-dot --no-ignore-global --no-messages --no-config --color= --colors= --column "
        "--no-column --trim --no-trim --vimgrep --json --sort= --sortr= --stats --passthru --crlf --debug "
        "--engine= --field-context-separator= --field-match-separator= --context-separator= "
        "--path-separator= --line-buffered --block-buffered --one-file-system --no-mmap --mmap "
        "--null-data --no-require-git --glob-case-insensitive --include-zero --no-unicode "
        "--dfa-size-limit= --regex-size-limit= --pre-glob= --stop-on-nonmatch --no-pre --no-follow",
        reads="-f= --file= --ignore-file=",
        runs="--pre= --hostname-bin= -z --search-zip",
        asks="-L --follow --hyperlink-format= --generate=",
        stands_in="-e --regexp -f --file --files --type-list",
        without=".",
        searches="visible",
        links="-L --follow",
        everything="-u --unrestricted -. --hidden",
        picks="-g --glob --iglob",
    ),
    "ag": Program(
        operands="text read*",
        plain="-i -s -S -l -L -c -n -r -R -f -a -u -t -U -z -w -v -Q -F -o -q -H -A= -B= -C= -G= -m= -p= "
        "--hidden --unrestricted --all-types --all-text --depth= --ignore= --ignore-dir= --file-search-regex= "
        "--literal --nocolor --nogroup --noheading --nonumbers --numbers --count --files-with-matches",
        without=".",
        searches="visible",
        links="-f --follow",
        everything="-u --unrestricted --hidden",
        risk="searches folders, as far as its own settings say",
    ),
    "ack": Program(
        operands="text read*",
        plain="-i -I -S -l -L -c -n -r -R -w -v -Q -o -h -H -f -g -x -s -1 -A= -B= -C= -m= --type= --ignore-dir= "
        "--ignore-file= --nocolor --nogroup --noheading --count",
        without=".",
        searches="all",
        risk="searches folders, as far as its own settings say",
    ),
    **dict.fromkeys(
        ("ugrep", "ug", "rgrep", "pcregrep", "pcre2grep", "sift", "pt"),
        GREP._replace(walks="", risk="searches folders, as far as its own settings say"),
    ),
    "fd": _FD,
    "fdfind": _FD,
}

# --- find -----------------------------------------------------------------------------------------

_FIND_ALONE = frozenset(
    {"-print", "-print0", "-ls", "-depth", "-d", "-mount", "-xdev", "-empty", "-true", "-false", "-prune",
     "-quit", "-o", "-or", "-a", "-and", "-not", "!", "(", ")", ",", "-daystart", "-nouser", "-nogroup",
     "-readable", "-writable", "-executable", "-noleaf", "-ignore_readdir_race", "-noignore_readdir_race",
     "-nowarn", "-warn"}
)  # fmt: skip
_FIND_VALUE = frozenset(
    {"-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-regextype",
     "-type", "-xtype", "-size", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-maxdepth",
     "-mindepth", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-lname", "-ilname", "-printf",
     "-fstype", "-used"}
)  # fmt: skip
_FIND_READS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_FIND_WRITES = {"-fprint": 1, "-fprint0": 1, "-fls": 1, "-fprintf": 2}
_BEGINS_EXPRESSION = frozenset({"-", "(", ")", "!", ","})
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_ACTS = frozenset({*_FIND_RUNS, *_FIND_WRITES, "-print", "-print0", "-printf", "-ls", "-delete"})


def uses_of_find(command: SimpleCommand, name: str) -> Uses:
    """Return what `find` does: its folders, and the actions of its expression."""
    words = command.words[1:]
    asks = [] if all(word.is_known for word in words) else [f"A word of `{name}` is known only when it runs."]
    at = 0
    while at < len(words) and _is_way(words[at].text):
        asks += (
            [f"`-L` of `{name}` follows links, also out of the workspace."] if words[at].text == "-L" else []
        )
        at += 1
    roots, expression = _roots(words[at:])
    asks += [f"`{shown(word.text)}` of `{name}` needs quotes." for word in expression if word.is_glob]
    done = list(_by_expression(command, name, expression, roots))
    deep: Depth = "links" if "-L" in [word.text for word in words[:at]] else "all"
    is_listed = all(each.words[0].text in LOOKS_AT_NAMES for use in done for each in use.inner if each.words)
    found = [Use("read", root, False, deep, _names_found(expression), is_listed=is_listed) for root in roots]
    return merged([Uses(tuple(found), asks=next(iter(asks), "")), *done])


def _names_found(words: Sequence[Word]) -> tuple[str, ...]:
    """Return patterns of the names that `find` finds; empty if they are not known."""
    texts = [word.text for word in words]
    has_action = not _FIND_ACTS.isdisjoint(texts)
    found: list[str] = []
    while texts:
        at = next((at for at, text in enumerate(texts) if text in ("-o", "-or")), len(texts))
        names, others = _names_of(texts[:at])
        is_skipped = "-prune" in others and {*_FIND_ACTS, "(", ")"}.isdisjoint(others)
        if not names and not (has_action and is_skipped):
            return ()
        found += names
        texts = texts[at + 1 :]
    return tuple(found) if all(map(is_plain_pattern, found)) else ()


def _names_of(texts: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Return the patterns that every name must match before a part of an expression acts, and its words."""
    names: list[str] = []
    at = 0
    while at < len(texts) and texts[at] not in _FIND_ACTS and texts[at] != ",":
        if texts[at] in ("!", "-not"):  # it leaves something out
            if texts[at + 1 : at + 2] in ([], ["("], ["!"], ["-not"]):
                return [], texts
            at += 1
        elif texts[at] in ("-name", "-iname"):
            names += [text.casefold() for text in texts[at + 1 : at + 2]]
        at += 2 if texts[at] in _FIND_VALUE else 1
    return names, texts


def _is_way(text: str) -> bool:
    return text in ("-H", "-P", "-L") or text.startswith("-O")


def _roots(words: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    """Return the folders in which `find` begins, and its expression."""
    at = next((at for at, word in enumerate(words) if word.text[:1] in _BEGINS_EXPRESSION), len(words))
    return words[:at] or (Word("."),), words[at:]


def _are_literal(words: Sequence[Word]) -> bool:
    return all(word.is_known and not word.is_glob for word in words)


def printed_by_find(command: SimpleCommand) -> tuple[Word, ...]:
    """Return what `find` prints, as words. They are split text, unless NUL characters end them; empty if it does more
    than print, or prints something else.
    """
    if command.texts[:1] != ("find",):
        return ()
    uses = uses_of_find(command, "find")
    roots, expression = _roots([*dropwhile(lambda word: _is_way(word.text), command.words[1:])])
    texts = [word.text for word in expression]
    only_prints = not uses.inner and all(use.access == "read" for use in uses.files)
    if uses.asks or not only_prints or not _are_literal(roots) or {"-printf", "-ls"} & {*texts}:
        return ()
    ends = {text for text in texts if text in ("-print", "-print0")}
    found = _found_by(expression)._replace(is_split="-print0" not in ends)
    return tuple([Word(root.text, is_known=False, found=found) for root in roots]) if len(ends) < 2 else ()


def _found_by(words: Sequence[Word]) -> Found:
    """Return what an expression finds, as far as every name must pass its tests."""
    found, is_negated, at = Found(), False, 0
    while at < len(words):
        text, value = words[at].text, "".join([word.text for word in words[at + 1 : at + 2]])
        has_value = text in _FIND_VALUE or text in _FIND_READS or text.startswith("-newer")
        is_simple = has_value or text in _FIND_ALONE
        if not is_simple or text in ("-o", "-or", ",") or (is_negated and text == "("):
            return Found()
        if not is_negated and text in ("-name", "-iname") and is_plain_pattern(value):
            found = found._replace(names=(value.casefold(),))
        elif not is_negated and (text, value) == ("-type", "f"):
            found = found._replace(may_be_link=False)
        is_negated = text in ("!", "-not")
        at += 2 if has_value else 1
    return found


def _by_expression(
    command: SimpleCommand, name: str, words: Sequence[Word], roots: Sequence[Word]
) -> Iterator[Uses]:
    at = 0
    while at < len(words):
        text = words[at].text
        value = words[at + 1 : at + 2]
        at += 1
        if text in _FIND_ALONE:
            continue
        if text in _FIND_RUNS:
            end = next((i for i in range(at, len(words)) if _ends_exec(words, i)), len(words))
            found = _found_by(words[: at - 1]) if text == "-exec" else None
            inner = _with_matches(command, words[at:end], roots, found)
            yield Uses(inner=(inner._replace(is_folder_known=False) if text.endswith("dir") else inner,))
            at = end + 1
        elif text in _FIND_WRITES:
            yield from (operand_uses(name, "write", word) for word in value)
            at += _FIND_WRITES[text]
        elif text in _FIND_VALUE or (text.startswith("-newer") and text.endswith("t")):
            at += 1
        elif text in _FIND_READS or text.startswith("-newer"):
            yield Uses(tuple([Use("read", word) for word in value]))
            at += 1
        elif text == "-files0-from":
            yield Uses(
                tuple([Use("read", word) for word in value]), asks=f"`{text}` reads files that another names."
            )
            at += 1
        elif text == "-delete":
            deleted = tuple([Use("tree", root) for root in roots])
            yield Uses(deleted, asks=f"`{name} -delete` deletes by pattern.")
        else:
            yield Uses(asks=f"`{shown(text)}` of `{name}` needs approval.")


def _ends_exec(words: Sequence[Word], at: int) -> bool:
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _with_matches(
    command: SimpleCommand, words: Sequence[Word], roots: Sequence[Word], found: Found | None
) -> SimpleCommand:
    """Return what `-exec` runs. What it finds is known only when it runs, but it lies under the roots."""
    inner: list[Word] = []
    for word in words:
        if word.text == "{}" and _are_literal(roots):
            inner += [Word(root.text, is_known=False, found=found) for root in roots]
        else:
            inner.append(Word(roots[0].text, is_known=False) if "{}" in word.text else word)
    return SimpleCommand(tuple(inner), folders=command.folders, is_folder_known=command.is_folder_known)


SEARCH_READERS: Mapping[str, Reader] = {"find": uses_of_find}
