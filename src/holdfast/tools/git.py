"""git_status, git_diff and git_log: look at a repository without running anything that it names.

`repository` keeps the repository's own settings away from git. A diff leaves out secret files, as reading them is
refused too.
"""

# Names are compared as they are written.

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.protocol.counts import counted
from holdfast.protocol.fence import Launch
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import ToolSpec
from holdfast.redact import Redactor
from holdfast.sandbox.process import Ended, Processes
from holdfast.sandbox.system import program_outside
from holdfast.tools.blocking import Refused, in_thread
from holdfast.tools.fencing import own_fence
from holdfast.tools.own import OwnPlaces
from holdfast.tools.readers import reader
from holdfast.tools.repository import View, borrowed, find, has_entry, view_of, write_config
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned
from holdfast.tools.web import redactor_of
from holdfast.tools.workspace import Root, kind_of, look, open_regular, place, refuse_protected

GIT_TOOLS = frozenset({"git_status", "git_diff", "git_log"})
NO_GIT = "git is not installed, or only where commands could change it."
TIMEOUT_S = 60.0
MAX_COMMITS = 200
COMMITS = 20
MAX_NAMES = 5_000
"""How many changed files of one diff are examined."""
_SAID_CHARS = 2_000
MAX_LEFT_OUT = 200
_NAMES_BYTES = 4 << 20
_PATHS = {
    "type": "array",
    "items": {"type": "string", "minLength": 1},
    "minItems": 1,
    "maxItems": 100,
    "default": ["."],
    "description": "Files or folders, in the workspace.",
}
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./~^+-]{0,199}")
"""A branch, tag or commit, with `~` and `^`. It cannot be an option. A colon would name a file in a commit."""
_RANGE = re.compile(r"(.*?[^.])(\.{2,3})([^.].*)")

_HARDENED = (
    "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.pager=cat",
    "-c", "core.quotePath=false", "-c", f"core.attributesFile={os.devnull}",
    "-c", "safe.bareRepository=explicit", "-c", "protocol.allow=never", "-c", "log.showSignature=false",
)  # fmt: skip
"""The view has no such settings. These hold even if it had."""
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative")


class _Git(msgspec.Struct, frozen=True):
    """Runs git in a view of the repository of a call."""

    processes: Processes
    program: str
    view: View
    context: CallContext
    root: Root
    ends_at: float
    """When the call has no time left, by the loop's clock."""

    async def run(self, *arguments: str, on_output: Callable[[str], None] = lambda _: None) -> str:
        """Return what git prints.

        Raises:
            Refused: git failed, or took too long. The message says what it printed.
        """
        redact = redactor_of(self.context)
        ended = await self.processes.run(self._launch(arguments), on_output, redact)
        if ended.how == "exited" and not ended.exit_code:
            return ended.output
        raise Refused(_failure(ended, redact))

    def pathspecs(self, given: Sequence[str]) -> list[str]:
        """Return what makes git look only at these paths. Nothing in them is a pattern.

        Raises:
            Refused: one leads out of the workspace.
        """
        top, found = self.view.repository.top, []
        for path in given:
            with place(self.root, path) as where:
                whole = os.path.relpath(where.whole, top)
            found.append(":(top)" if whole == "." else f":(top,literal){whole}")
        return found

    def _launch(self, arguments: Sequence[str]) -> Launch:
        repository = self.view.repository
        return Launch(
            argv=(self.program, "--no-pager", *_HARDENED, *arguments),
            cwd=self.context.workspace,
            key=self.context.key,
            env=self.view.environment,
            timeout_s=max(0.01, self.ends_at - asyncio.get_running_loop().time()),
            idle_s=self.context.idle_s,
            check=self.context.check,
            fence=own_fence(
                self.processes,
                repository.top,
                repository.common,
                repository.folder,
                # What a command can change could name the objects of another project.
                *(borrowed(repository) if repository.top != self.context.workspace else ()),
                writable=(self.view.folder,),
                walls=self.context.policy.walls,
            ),
        )


class _GitTool(Unplanned):
    """What the three tools have in common."""

    spec: ToolSpec

    def __init__(self, processes: Processes, own: OwnPlaces) -> None:
        self._processes = processes
        self._own = own

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Return what git prints, or why it fails."""
        found = program_outside("git")
        if not found:
            return RawResult("error", NO_GIT)
        root, written = Root(context.workspace, self._own), context.policy.walls.write
        ends_at = asyncio.get_running_loop().time() + context.timeout_s
        try:
            views = await in_thread(lambda: view_of(find(context.workspace, self._own), self._own, written))
            view = await in_thread(views.__enter__)
            try:
                git = _Git(self._processes, found, view, context, root, ends_at)
                theirs = str(Path(view.folder, "theirs"))
                listed = await git.run("config", "--file", theirs, "--no-includes", "--list", "-z")
                await in_thread(lambda: write_config(view, listed))
                return RawResult("ok", await self._ask(git, arguments))
            finally:
                await in_thread(lambda: views.__exit__(None, None, None))
        except Refused as refusal:
            return RawResult("error", str(refusal))
        except OSError as error:
            return RawResult("error", f"git: {error.strerror or error}.", detail=repr(error))

    async def _ask(self, git: _Git, arguments: dict[str, Any]) -> str:
        raise NotImplementedError


class GitStatus(_GitTool):
    """git_status: the branch, and what is not committed."""

    spec = reader(
        name="git_status",
        description="Show the branch and what is not committed: staged changes in the first column, others in the "
        "second, and untracked files (??). Submodules are left out.",
        parameters=arguments_object(required=[], paths=_PATHS),
        timeout_s=TIMEOUT_S,
        kinds={"paths": "path"},
    )

    async def _ask(self, git: _Git, arguments: dict[str, Any]) -> str:
        paths = await in_thread(lambda: git.pathspecs(arguments.get("paths", ["."])))
        told = await git.run(
            "status", "--short", "--branch", "--no-ahead-behind", "--ignore-submodules=all", "--", *paths,
            on_output=git.context.on_output,
        )  # fmt: skip
        clean = "" if told.count("\n") > 1 else "Nothing to commit.\n"
        under_way = "".join(f"{what} is not finished.\n" for what in git.view.under_way)
        return told + clean + under_way


class GitDiff(_GitTool):
    """git_diff: what changed, as a diff."""

    spec = reader(
        name="git_diff",
        description="Show changes as a diff: of files against the index, of the index against the last commit "
        "(`staged`), or against and between revisions. Untracked files and submodules are left out.",
        parameters=arguments_object(
            required=[],
            revision={
                "type": "string",
                "maxLength": 410,
                "description": "A: files against A. A..B: from A to B. A...B: from where they parted to B.",
            },
            paths=_PATHS,
            staged={"type": "boolean"},
            stat={"type": "boolean", "description": "Only how many lines changed, file by file."},
            context={
                "type": "integer",
                "minimum": 0,
                "maximum": 1000,
                "description": "Lines around a change.",
            },
        ),
        timeout_s=TIMEOUT_S,
        kinds={"paths": "path"},
    )

    async def _ask(self, git: _Git, arguments: dict[str, Any]) -> str:
        compared = _compared(arguments.get("revision", ""), is_staged=arguments.get("staged", False))
        paths = await in_thread(lambda: git.pathspecs(arguments.get("paths", ["."])))
        names = Path(git.view.folder, "names")
        listing = ("--name-only", "--no-renames", "-z", f"--output={names}")
        await git.run(*_DIFF, *listing, *compared, "--", *paths)
        left_out = await in_thread(lambda: list(_left_out(_names(names), git.root)))
        if len(left_out) > MAX_LEFT_OUT:
            raise Refused(f"{len(left_out)} of the changed files may not be read. Name others in `paths`.")
        # A name is relative to the workspace, where git runs.
        without = [f":(exclude,literal){name}" for name in left_out]
        form = ["--stat=120"] if arguments.get("stat") else [f"--unified={arguments.get('context', 3)}"]
        told = await git.run(
            *_DIFF, *form, *compared, "--", *paths, *without, on_output=git.context.on_output
        )
        shown = ", ".join(left_out).encode(errors="surrogateescape").decode(errors="replace")
        return (
            told + (f"[not shown, because they may not be read: {shown}]\n" if left_out else "")
            or "No changes."
        )


class GitLog(_GitTool):
    """git_log: commits, newest first."""

    spec = reader(
        name="git_log",
        description="List commits, newest first: hash, date, author, subject, and the branches and tags on it.",
        parameters=arguments_object(
            required=[],
            revision={"type": "string", "maxLength": 410, "description": "Where to begin, or a range A..B."},
            paths={**_PATHS, "description": "Only commits that changed these files or folders."},
            limit={
                "type": "integer",
                "minimum": 1,
                "description": f"Default {COMMITS}, at most {MAX_COMMITS}.",
            },
            skip={"type": "integer", "minimum": 0, "description": "Leave out so many of the newest."},
            body={"type": "boolean", "description": "Whole messages, and the names of changed files."},
        ),
        timeout_s=TIMEOUT_S,
        kinds={"paths": "path"},
    )

    async def _ask(self, git: _Git, arguments: dict[str, Any]) -> str:
        revision, has_body = arguments.get("revision", "") or "HEAD", arguments.get("body", False)
        ends = _RANGE.fullmatch(revision)
        for end in (ends[1], ends[3]) if ends else (revision,):
            _check_revision(end)
        paths = await in_thread(lambda: git.pathspecs(arguments.get("paths", ["."])))
        if paths == [":(top)"]:  # with a path, git leaves out merges
            paths = []
        limit = min(arguments.get("limit", COMMITS), MAX_COMMITS)
        form = "commit %H%d%nAuthor: %an <%ae>%nDate: %ad%n%n%w(0,4,4)%B" if has_body else "%h %ad %an: %s%d"
        told = await git.run(
            "log", "--no-color", "--no-ext-diff", "--no-textconv", "--no-show-signature", f"--format={form}",
            "--date=format:%Y-%m-%d %H:%M", f"--max-count={limit}", f"--skip={arguments.get('skip', 0)}",
            "--ignore-submodules=all", *(["--name-status", "--relative"] if has_body else []),
            "--end-of-options", revision, "--", *paths,
            on_output=git.context.on_output,
        )  # fmt: skip
        return told or "No commits."


def are_of_use(workspace: str) -> bool:
    """Return whether these tools can do anything in a workspace: it is in a repository, and git is installed."""
    return has_entry(workspace) and bool(program_outside("git"))


def _check_revision(revision: str) -> None:
    if not _REVISION.fullmatch(revision):
        raise Refused(
            f"{revision!r} is not a revision. Use the name of a branch or tag, a hash, or HEAD, with ~ and ^, "
            "or two of them as A..B."
        )


def _compared(revision: str, *, is_staged: bool) -> list[str]:
    """Return the options that say what is compared. A revision is always a commit, never a file in one: else two
    files could be compared whose names nobody saw.

    Raises:
        Refused: the text is not a revision, and not two.
    """
    ends = _RANGE.fullmatch(revision)
    if not revision:
        return ["--ignore-submodules=all", *(["--cached"] if is_staged else [])]
    if ends is None:
        _check_revision(revision)
        how = ["--ignore-submodules=all", *(["--cached"] if is_staged else [])]
        return [*how, "--end-of-options", f"{revision}^{{commit}}"]
    if is_staged:
        raise Refused(
            "`staged` compares the index with one revision. Leave out `staged`, or name one revision."
        )
    _check_revision(ends[1])
    _check_revision(ends[3])
    how = ["--ignore-submodules=dirty", *(["--merge-base"] if ends[2] == "..." else [])]
    return [*how, "--end-of-options", f"{ends[1]}^{{commit}}", f"{ends[3]}^{{commit}}"]


def _names(file: Path) -> Iterator[str]:
    """Yield the names of changed files, relative to the workspace.

    Raises:
        Refused: there are too many, or one of them cannot be the name of a file in the workspace.
    """
    with file.open("rb") as listed:
        content = listed.read(_NAMES_BYTES + 1)
    found = content.decode(errors="surrogateescape").split("\0")[:-1]
    if len(content) > _NAMES_BYTES or len(found) > MAX_NAMES:
        raise Refused(f"More than {counted(MAX_NAMES, 'file')} changed. Name some of them in `paths`.")
    for name in found:
        # A damaged index may name files elsewhere, and git would read them.
        if name.startswith("/") or not {"..", ".git"}.isdisjoint(name.casefold().split("/")):
            raise Refused(f"The repository names {name!r} as one of its files, so no diff is shown.")
        yield name


def _left_out(names: Iterator[str], root: Root) -> Iterator[str]:
    """Yield the files that a file tool would not read."""
    for name in names:
        try:
            with place(root, name) as found:
                refuse_protected(name, found, "read")
                facts = look(found)
                if (
                    facts is not None and kind_of(facts.st_mode) == "file"
                ):  # it may be a secret by another name
                    with open_regular(found, name):
                        pass
        except FileNotFoundError:
            pass
        except (Refused, OSError):
            yield name


def _failure(ended: Ended, redact: Redactor) -> str:
    said = redact(ended.output).strip()[-_SAID_CHARS:]
    if ended.how != "exited":
        return f"git was ended: {'too much output' if ended.how == 'flood' else 'it took too long'}. {said}".strip()
    return said or f"git failed with exit code {ended.exit_code}."
