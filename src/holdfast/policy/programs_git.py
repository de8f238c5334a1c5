"""What the subcommands of git do.

git runs what the configuration of a repository names. That file is protected, but only for the repository of the
workspace: a folder may contain another one that a clone brought. So git asks in any other folder.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping

from holdfast.policy.programs_options import Program, reading_of, shown, uses_by_row
from holdfast.policy.programs_settings import uses_of_setting
from holdfast.policy.simple import SimpleCommand, Word
from holdfast.policy.uses import Reader, Use, Uses, merged

_GIT = Program(
    operands="text*",
    plain="-P -v -h --no-pager --no-optional-locks --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice --html-path "
    "--man-path --info-path",
    asks="-c= --config-env= -C= --git-dir= --work-tree= --namespace= --exec-path? --super-prefix= "
    "--attr-source= --bare -p --paginate --list-cmds=",
    is_ordered=True,
)

# --- reading --------------------------------------------------------------------------------------

_DIFF = Program(
    operands="rev*",
    plain="-p -u -s -U= -z -a -b -w -W -R -B? -M? -C? -D -l= -S= -G= -I= -t -q --patch --no-patch "
    "--unified= --raw --patch-with-raw --patch-with-stat --stat? --numstat --shortstat --dirstat? "
    "--cumulative --summary --name-only --name-status --color? --no-color --color-moved? --no-color-moved "
    "--color-moved-ws= --word-diff? --word-diff-regex= --color-words? --no-renames --renames "
    "--rename-empty --no-rename-empty --check --full-index --binary --abbrev? --find-copies-harder "
    "--find-renames? --find-copies? --break-rewrites? --irreversible-delete --diff-filter= --pickaxe-all "
    "--pickaxe-regex --find-object= --relative? --no-relative --text --ignore-cr-at-eol "
    "--ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines "
    "--ignore-matching-lines= --inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff "
    "--no-textconv --ignore-submodules? --src-prefix= --dst-prefix= --no-prefix --default-prefix "
    "--line-prefix= --ita-invisible-in-index --minimal --patience --histogram --anchored= "
    "--diff-algorithm= --indent-heuristic --no-indent-heuristic --compact-summary --no-compact-summary "
    "--cached --staged --merge-base --no-index --output-indicator-new= --output-indicator-old= "
    "--output-indicator-context= --stat-width= --stat-count= --stat-name-width= --stat-graph-width= "
    "--root --cc -c -m --base --ours --theirs -0 -1 -2 -3 --combined-all-paths --skip-to= --rotate-to=",
    reads="-O=",
    writes="--output=",
    runs="--ext-diff --textconv",
    asks="--submodule?",
)
_LOG = _DIFF.also(
    plain="-n= -i -E -F -P -g -L= -h --max-count= --oneline --graph --no-graph --decorate? "
    "--no-decorate --decorate-refs= --decorate-refs-exclude= --all --branches? --tags? --remotes? "
    "--since= --after= --until= --before= --since-as-filter= --author= --committer= --grep= "
    "--grep-reflog= --all-match --invert-grep --regexp-ignore-case --basic-regexp --extended-regexp "
    "--fixed-strings --perl-regexp --merges --no-merges --min-parents= --max-parents= --no-min-parents "
    "--no-max-parents --first-parent --exclude-first-parent-only --not --glob= --exclude= "
    "--exclude-hidden= --reverse --date= --format= --pretty? --abbrev-commit --no-abbrev-commit --follow "
    "--full-history --dense --sparse --simplify-merges --ancestry-path? --show-pulls --topo-order "
    "--date-order --author-date-order --left-right --left-only --right-only --cherry --cherry-pick "
    "--cherry-mark --boundary --simplify-by-decoration --skip= --no-walk? --walk-reflogs --source "
    "--notes? --no-notes --show-notes --show-notes-by-default --parents --children --count --objects "
    "--use-mailmap --mailmap --no-mailmap --remove-empty --reflog --full-diff --relative-date --encoding= "
    "--expand-tabs? --no-expand-tabs --log-size --diff-merges= --no-diff-merges --remerge-diff --dd "
    "--clear-decorations --no-show-signature --do-walk --merge --summary-only --disk-usage? --timestamp "
    "--header",
    runs="--show-signature",
    asks="--stdin --alternate-refs --bisect",
)._replace(has_numbers=True)
_REFS = Program(
    operands="text*",
    plain="-s -p -q --count= --shell --perl --python --tcl --sort= --format= --color? --points-at= "
    "--merged? --no-merged? --contains? --no-contains? --ignore-case --omit-empty --exclude= --head "
    "--heads --branches --tags -d --dereference --hash? --abbrev? --verify --quiet --exists",
)

_RUNS_GPG = re.compile(r"%[+ -]?G|%\(\*?signature")
"""Placeholders of a format for which git checks a signature."""
_REMOTE = re.compile(r"(?:([a-z+]+)://(?:[^/@]*@)?([^/]+)|[^/@:]+@([^/@:]+):)")
"""`ssh://HOST/PATH` or `USER@HOST:PATH`."""
_IS_PATHSPEC = re.compile(r"[*?\[]|^:")
"""What git takes for a pattern of paths."""
_LISTS = "-l --list --contains --no-contains --merged --no-merged --points-at"
_NAMES = (
    "--sort= --points-at= --format= --color? --no-color --column? --no-column -i --ignore-case "
    "--abbrev? --no-abbrev --omit-empty"
)

SUBCOMMANDS: Mapping[str, Program] = {
    "status": Program(
        plain="-s -b -v -u? -z --short --branch --show-stash --porcelain? --long --verbose "
        "--untracked-files? --ignored? --ignore-submodules? --column? --no-column --ahead-behind "
        "--no-ahead-behind --renames --no-renames --find-renames?",
        searches="unignored",
        everything="--ignored",
        is_listing=True,
    ),
    "diff": _DIFF,
    "diff-tree": _LOG.also(plain="-r -v --no-commit-id --always"),
    "diff-index": _DIFF.also(plain="-r"),
    "diff-files": _DIFF.also(plain="-r"),
    "log": _LOG,
    "show": _LOG,
    "whatchanged": _LOG,
    "rev-list": _LOG,
    "shortlog": _LOG.also(plain="-s -e -w? --summary --numbered --email --group= --committer"),
    "blame": Program(
        operands="rev*",
        plain="-L= -l -t -b -p -M? -C? -h -c -f -n -s -e -w --root --show-stats --reverse --porcelain "
        "--line-porcelain --incremental --date= --score-debug --show-name --show-number --show-email "
        "--abbrev= --since= --ignore-rev= --color-lines --color-by-age --minimal --progress --no-progress "
        "--first-parent",
        reads="-S= --contents= --ignore-revs-file=",
    ),
    "annotate": Program(operands="rev*", plain="-L= -l -t -b -p -M? -C? -f -n -s -e -w"),
    "branch": Program(
        operands="ask*",
        plain=f"-a -r -v -q -l --all --remotes --list --show-current --verbose --quiet --contains? --no-contains? "
        f"--merged? --no-merged? {_NAMES}",
    ),
    "tag": Program(
        operands="ask*", plain=f"-l -n? --list --contains? --no-contains? --merged? --no-merged? {_NAMES}"
    ),
    "ls-files": Program(
        plain="-c -d -m -o -i -s -u -k -z -t -v -f -x= --cached --deleted --modified --others "
        "--ignored --stage --unmerged --killed --directory --no-empty-directory --exclude= "
        "--exclude-standard --error-unmatch --full-name --abbrev? --eol --with-tree= --format= "
        "--deduplicate --resolve-undo --sparse --debug",
        reads="-X= --exclude-from= --exclude-per-directory=",
        asks="--recurse-submodules",
    ),
    "ls-tree": Program(
        operands="rev*",
        plain="-d -r -t -l -z --long --name-only --name-status --object-only --full-name --full-tree "
        "--abbrev? --format=",
    ),
    "grep": Program(
        operands="text rev*",
        plain="-a -I -i -w -v -h -H -E -G -P -F -n -l -L -z -o -c -p -W -e= -q -A= -B= -C= -r -m= "
        "--text --ignore-case --word-regexp --invert-match --full-name --extended-regexp --basic-regexp "
        "--perl-regexp --fixed-strings --line-number --column --files-with-matches --name-only "
        "--files-without-match --null --only-matching --count --all-match --quiet --max-depth= "
        "--recursive --no-recursive --max-count= --color? --no-color --break --heading --show-function "
        "--context= --after-context= --before-context= --function-context --threads= --and --or --not "
        "--cached --no-exclude-standard --exclude-standard --no-textconv",
        reads="-f=",
        runs="-O? --open-files-in-pager? --textconv --ext-grep",
        asks="--recurse-submodules --no-index --untracked",
        stands_in="-e -f",
        has_numbers=True,
    ),
    "rev-parse": Program(
        operands="text*",
        plain="--verify -q --quiet --sq --short? --not --symbolic --symbolic-full-name --abbrev-ref? "
        "--all --branches? --tags? --remotes? --glob= --exclude= --disambiguate= --revs-only --no-revs "
        "--flags --no-flags --show-toplevel --show-prefix --show-cdup --git-dir --absolute-git-dir "
        "--git-common-dir --is-inside-git-dir --is-inside-work-tree --is-bare-repository "
        "--is-shallow-repository --show-superproject-working-tree --show-object-format? --since= --after= "
        "--until= --before= --path-format= --local-env-vars",
        asks="--parseopt --sq-quote --git-path= --resolve-git-dir= --default= --prefix= --shared-index-path",
    ),
    "describe": Program(
        operands="text*",
        plain="--all --tags --contains --abbrev= --candidates= --exact-match --debug --long --match= "
        "--exclude= --always --first-parent --dirty? --broken?",
    ),
    "merge-base": Program(
        operands="text*", plain="-a --all --octopus --independent --is-ancestor --fork-point"
    ),
    "name-rev": Program(
        operands="text*", plain="--tags --refs= --exclude= --all --name-only --no-undefined --always"
    ),
    "cat-file": Program(
        operands="rev*", plain="-t -s -e -p --allow-unknown-type --use-mailmap", runs="--textconv --filters"
    ),
    "for-each-ref": _REFS,
    "show-ref": _REFS,
    "count-objects": Program(operands="", plain="-v -H --verbose --human-readable"),
    "check-ignore": Program(plain="-q -v -n -z --quiet --verbose --non-matching --no-index", asks="--stdin"),
    "version": Program(operands="", plain="--build-options"),
}
"""The subcommands that only read. In `branch` and `tag`, an operand makes one, unless an option lists them."""

_LISTING: Mapping[str, Mapping[str, Program]] = {
    "stash": {"list": _LOG, "show": _DIFF.also(plain="--include-untracked --only-untracked")},
    "remote": {
        "": Program(operands="", plain="-v --verbose"),
        "get-url": Program(operands="text*", plain="--push --all"),
    },
    "reflog": {"": _LOG, "show": _LOG},
    "worktree": {
        "list": Program(operands="", plain="-v -z --porcelain --verbose"),
        "add": Program(
            operands="make text",
            plain="-b= -B= -d -f -q --detach --force --checkout --no-checkout --guess-remote --no-guess-remote "
            "--track --no-track --lock --reason= --orphan --quiet",
            risk="checks out another branch",
        ),
    },
    "notes": {"list": Program(operands="text*"), "show": Program(operands="text*")},
}
"""Subcommands that only read if they begin with one of these words; empty: with no word."""

_CHANGES = "changes the repository, or is not known"
_MAKES: Mapping[str, Program] = {
    "add": Program(
        operands="read*",
        plain="-A -u -v -n -f -N --all --update --verbose --dry-run --force --intent-to-add --ignore-errors "
        "--no-all --refresh --renormalize --chmod=",
        without=".", searches="unignored", everything="-f --force", risk="changes the repository",
    ),
    "archive": Program(
        operands="rev*", plain="-v -l --format= --prefix= --list --verbose", writes="-o= --output=", runs="--exec=",
        asks="--remote= --add-file=", risk="packs files",
    ),
    "clone": Program(
        operands="text make", plain="-q -v --depth= -b= --branch= --single-branch -o= -c= --config= -j= --filter= "
        "--recursive",
        writes="--separate-git-dir=", reads="--template= --reference=", risk="fetches a repository",
    ),
    "format-patch": _LOG.also(writes="-o= --output-directory=")._replace(risk="writes files"),
    "bundle": Program(operands="text write text*", risk="packs a repository"),
    "rebase": Program(operands="text*", plain="-i --onto=", runs="-x= --exec=", risk=_CHANGES),
    "filter-branch": Program(
        operands="text*", plain="-f --prune-empty --subdirectory-filter=", risk=_CHANGES,
        runs="--setup= --env-filter= --tree-filter= --index-filter= --parent-filter= --msg-filter= --commit-filter= "
        "--tag-name-filter=",
    ),
    **dict.fromkeys(
        ("fetch", "pull", "ls-remote"),
        Program(operands="text*", plain="-q -v -o= -j= --depth= --refmap=", runs="--upload-pack=", risk=_CHANGES),
    ),
    "push": Program(operands="text*", plain="-q -v -u -f -o=", runs="--receive-pack= --exec=", risk=_CHANGES),
    **dict.fromkeys(
        ("difftool", "mergetool"),
        Program(operands="text*", plain="-t= -y -g -d", runs="-x= --extcmd=", risk="runs another program"),
    ),
    "init": Program(
        operands="make", plain="-q -b= --quiet --bare --initial-branch= --object-format= --shared?",
        writes="--separate-git-dir=", reads="--template=", risk="makes a repository",
    ),
    "apply": Program(
        operands="read*", plain="-p= -C= -R -3 -v -q --stat --numstat --summary --check --index --cached --reverse "
        "--3way --exclude= --include= --whitespace= --recount --unidiff-zero", writes="--directory=",
        risk="changes the files that a patch names",
    ),
    "checkout-index": Program(
        operands="text*", plain="-a -f -n -q -u -z --all --force --stage= --stdin", writes="--prefix=",
        risk="changes files",
    ),
    "submodule": Program(
        operands="text text make", plain="-q -b= -f --quiet --branch= --force --name= --depth= --init --recursive",
        reads="--reference=", risk="changes the repository",
    ),
}  # fmt: skip
_UNKNOWN = Program(operands="text*", risk=_CHANGES)

# --- git config -----------------------------------------------------------------------------------

_CONFIG = Program(
    operands="text*",
    plain="--get --get-all --get-regexp --get-urlmatch --list -l --local --global --system --worktree "
    "--name-only --show-origin --show-scope -z --null --bool --int --path --type= --default= --includes "
    "--no-includes",
    asks="--blob= --unset --unset-all --add --replace-all --rename-section --remove-section -e --edit "
    "--get-color --get-colorbool --fixed-value --append --comment= --all --value= --regexp --url=",
    is_ordered=True,
)
_CONFIG_READS = ("--get", "--get-all", "--get-regexp", "--list", "-l")
_CONFIG_WRITES = frozenset(
    {"--unset", "--unset-all", "--add", "--replace-all", "--rename-section", "--remove-section", "-e", "--edit",
     "--append"}
)  # fmt: skip
_CONFIG_FILES = ("-f", "--file")
_WRITES_CONFIG = "A configuration of git names programs that git runs, so no command may write it."


def _config(words: tuple[Word, ...]) -> Uses:
    """Reading asks, because values may contain passwords. Nothing may write."""
    program = _CONFIG.also(reads="-f= --file=")
    reading = reading_of(program, words)
    operands = [word.text for word in reading.operands]
    is_reading = reading.has(*_CONFIG_READS) or operands[:1] in (["get"], ["list"]) or len(operands) == 1
    is_reading = is_reading and not reading.has(*_CONFIG_WRITES)
    if not is_reading:
        files = [Use("write", word) for word in reading.values(*_CONFIG_FILES)] or [
            Use("write", Word(".git/config"))
        ]
        return Uses(tuple(files), denies=_WRITES_CONFIG)
    name = next((text for text in operands if text not in ("get", "list")), "")
    if name.startswith(("user.", "core.", "init.")) and not reading.strange and len(operands) < 3:
        return uses_by_row("git config", program, words)
    return merged([Uses(asks="`git config` may print passwords."), uses_by_row("git config", program, words)])


# --- all of it ------------------------------------------------------------------------------------


def uses_of_git(command: SimpleCommand, name: str) -> Uses:
    """Return what a command of git does."""
    words = command.words[1:]
    reading = reading_of(_GIT, words)
    count = len(words) - len(reading.operands)
    found = [uses_by_row(name, _GIT, words[:count])] if count else []
    is_elsewhere = any(each and posixpath.normpath(each) != "." for each in command.folders)
    if is_elsewhere or not command.is_folder_known:
        found.append(Uses(asks="`git` runs what the repository of that folder names."))
    if reading.operands:
        found.append(_subcommand(reading.operands[0], reading.operands[1:]))
    for word in reading.values("-c"):
        key, _, value = word.text.partition("=")
        found.append(uses_of_setting(key, word._replace(text=value)))
    found.append(Uses(tuple([Use("read", word) for word in reading.values("--git-dir", "--exec-path")])))
    found.append(Uses(tuple([Use("write", word) for word in reading.values("--work-tree")])))
    uses = merged(found)
    folders = [word.text for word in reading.values("-C")]
    return _from_folder(posixpath.join("", *folders), uses) if folders else uses


def _subcommand(subcommand: Word, words: tuple[Word, ...]) -> Uses:
    name = f"git {shown(subcommand.text)}"
    if not subcommand.is_known or subcommand.is_glob:
        return Uses(asks="The subcommand of `git` is known only when it runs.")
    if subcommand.text == "config":
        return _config(words)
    addresses = Uses(sends=tuple(filter(None, map(_address, words))))
    if (kinds := _LISTING.get(subcommand.text)) is not None:
        first = words[0].text if words else ""
        if first in kinds and first:
            return uses_by_row(f"{name} {first}", kinds[first], words[1:])
        if "" in kinds and (not first or first.startswith("-")):
            return uses_by_row(name, kinds[""], words)
        stashed = tuple(map(_stashed, words)) if subcommand.text == "stash" else ()
        return merged([addresses, Uses(asks=f"`{name}` changes the repository."), *stashed])
    program = SUBCOMMANDS.get(subcommand.text)
    if program is None:
        row = _MAKES.get(subcommand.text, _UNKNOWN)
        if row.searches and any(_IS_PATHSPEC.search(word.text) for word in words):
            words = (*words, Word("."))
        inner = Uses(
            scripts=tuple(_run_by(subcommand.text, words)), denies=_written_by(subcommand.text, row, words)
        )
        lost = (Use("write", Word(".gitignore")),) if _may_change_ignores(subcommand.text, words) else ()
        return merged([addresses, uses_by_row(name, row, words), inner, Uses(lost)])
    if program.operands == "ask*" and reading_of(program, words).has(*_LISTS.split()):
        program = program._replace(operands="text*")
    if program.operands.endswith(("read*", "rev*")):
        program = program._replace(without=".")
    program = _beyond_the_index(subcommand.text, program, words)
    if subcommand.text == "diff" and (given := reading_of(program, words)):
        # Two folders are compared with all that is in them, unless both are versions.
        has_two = given.has("--no-index") or len(given.operands) > 1
        program = program._replace(searches="all" if has_two else "")
    if any(_RUNS_GPG.search(word.text) for word in words):
        return merged(
            [Uses(asks=f"`{name}` runs another program for `%G`."), uses_by_row(name, program, words)]
        )
    return uses_by_row(name, program, words)


def _beyond_the_index(subcommand: str, program: Program, words: tuple[Word, ...]) -> Program:
    """Return a row of a subcommand with what its options make it read of files that git does not know."""
    given = reading_of(program, words)
    if subcommand == "grep" and given.has("--no-index", "--untracked"):
        return program._replace(searches="all")
    if subcommand == "ls-files" and given.has("-o", "--others"):
        is_new = given.has("--exclude-standard") and not given.has("-i", "--ignored")
        return program._replace(searches="unignored" if is_new else "all", is_listing=True)
    return program


def _run_by(subcommand: str, words: tuple[Word, ...]) -> Iterator[Word]:
    """Return the commands that the words of a subcommand spell out: `bisect run`, `submodule foreach`, `ext::`."""
    texts = [word.text for word in words]
    known = [text for text, word in zip(texts, words, strict=True) if word.is_known]
    yield from (Word(text.removeprefix("ext::")) for text in known if text.startswith("ext::"))
    verb = {"bisect": "run", "submodule": "foreach"}.get(subcommand)
    if verb in texts and len(known) == len(texts):
        after = texts[texts.index(verb) + 1 :]
        yield Word(" ".join(after) if subcommand == "submodule" else shlex.join(after))


def _may_change_ignores(subcommand: str, words: tuple[Word, ...]) -> bool:
    """Return whether a subcommand may take away what says which files git ignores. Another branch may do so, too."""
    texts = [word.text for word in words]
    if subcommand == "clean":
        return "-n" not in texts and "--dry-run" not in texts
    if subcommand == "reset":
        return not {"--hard", "--merge", "--keep"}.isdisjoint(texts)
    if subcommand not in ("mv", "rm", "checkout", "restore"):
        return False
    names = {posixpath.basename(text) for text in texts}
    is_whole = not {".", ":/", ":", "*"}.isdisjoint(texts)
    return is_whole or ".gitignore" in names or any(_IS_PATHSPEC.search(text) for text in texts)


def _written_by(subcommand: str, row: Program, words: tuple[Word, ...]) -> str:
    """Return why `clone` and `init` never run: they would write the configuration or the hooks of a repository."""
    if subcommand not in ("clone", "init"):
        return ""
    given = reading_of(row, words)
    templates = [word.text for word in given.values("--template") if word.text]
    return _WRITES_CONFIG if templates or given.has("-c", "--config") else ""


def _stashed(word: Word) -> Uses:
    """Return what `git stash` takes besides what git knows, by one of its words."""
    if word.text in ("-a", "--all"):
        return Uses((Use("read", Word("."), deep="all"),))
    if word.text in ("-u", "--include-untracked"):
        return Uses((Use("read", Word("."), deep="unignored"),))
    return Uses()


def _address(word: Word) -> Word | None:
    """Return the address of a repository on another machine; None for other words."""
    if word.text.startswith(("http://", "https://")):
        return word
    if (found := _REMOTE.match(word.text)) is None:
        return None
    host = found[3] or found[2]
    port = (
        "" if ":" in host else ":9418" if found[1] == "git" else ":21" if "ftp" in (found[1] or "") else ":22"
    )
    return word._replace(text=f"http://{host}{port}")


def _from_folder(folder: str, uses: Uses) -> Uses:
    """Return the uses of a command that `-C` runs in another folder."""
    files = [
        use._replace(word=use.word._replace(text=posixpath.join(folder, use.word.text))) for use in uses.files
    ]
    return uses._replace(files=(Use("read", Word(folder)), *files))


GIT_READERS: Mapping[str, Reader] = {"git": uses_of_git}
