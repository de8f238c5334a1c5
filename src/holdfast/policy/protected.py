"""Protected files: Holdfast's own, and files that control other programs.

This is the only list. File tools, searches and the rules for commands use it. Names are compared as the most lenient
file system would compare them: without case and without invisible characters.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from holdfast.policy.paths import is_inside

Access = Literal["read", "write", "tree"]
"""`tree`: a write to everything under a folder, as by `rm -r` and `mv`."""

BESIDE = ".copies"
"""What the name of the folder with a home's copies adds to that of the home."""
HOME = "home"
SETTINGS = "settings"
KEY = "key"


class Own(msgspec.Struct, frozen=True):
    """The places of Holdfast's own files."""

    homes: tuple[str, ...] = ()
    """Folders with the journal and its files. No tool may read or write them."""
    settings: tuple[str, ...] = ()
    """Settings of the user and the administrator. No tool may write them."""
    keys: tuple[str, ...] = ()
    """Files with the key of the stored secrets. No tool may read or write them."""


OPEN_IN_HOME: tuple[str, ...] = ()
"""The names of folders in a home that tools may read."""

# --- names ----------------------------------------------------------------------------------------


class Named(NamedTuple):
    """Names of files, and the verdict on writing to them."""

    verdict: Literal["ask", "deny"]
    why: str
    names: tuple[str, ...]
    """Paths in any folder, with everything under them. With `$` at the end, only the name itself. With `.*` at the
    end, every name that begins so, unless Holdfast put it aside.
    """
    but: tuple[str, ...] = ()
    """The last parts of paths that it does not mean."""
    is_plain: bool = False
    """No pattern counts as one of its names: `*.py` means others."""


STEERING: tuple[Named, ...] = (
    Named("deny", "it can run commands, or change how git behaves", (
        ".git$", ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/gitdir", ".git/info",
        ".git/modules", ".git/objects/info", ".git/rebase-apply", ".git/rebase-merge", ".git/sequencer",
        ".git/worktrees", ".git/remotes", ".git/branches", ".gitconfig", ".config/git",
    )),
    Named("deny", "it can run commands, or change how Mercurial behaves", (
        ".hg$", ".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".hgrc", ".config/hg",
    )),
    Named("deny", "a shell or a login runs it", (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
        ".zprofile", ".zlogin", ".zlogout", ".zshrc.zwc", ".zshenv.zwc", ".zprofile.zwc", ".zlogin.zwc",
        ".zlogout.zwc", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".envrc", ".config/fish",
        ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".inputrc", ".config/environment.d",
        ".config/autostart", ".config/systemd",
    )),
    Named("deny", "a program of the user runs it when it starts", (
        ".local/bin", ".local/share/applications", ".vimrc", ".gvimrc", ".exrc", ".vim", ".nvimrc", ".nvim.lua",
        ".config/nvim", ".emacs", ".emacs.el", ".emacs.elc", ".emacs.d", ".config/emacs", ".tmux.conf",
        ".config/tmux", ".screenrc", ".gdbinit", ".lldbinit", ".psqlrc", ".sqliterc", ".rprofile", ".irbrc",
        ".pythonrc", ".pythonrc.py", ".ipython", ".config/pip", ".m2/settings.xml", ".ssh",
    )),
    Named("deny", "Python runs it whenever it starts", (
        # Compiled and native ones have other ends, and each Python has ends of its own.
        "sitecustomize", "sitecustomize.*", "usercustomize", "usercustomize.*",
    ), is_plain=True),
    Named("deny", "it controls an editor or an agent", (
        ".mcp.json", ".vscode", ".idea", ".agent", ".agents", ".claude", ".codex", ".cursor", ".holdfast",
        ".zed", ".gemini", ".windsurf", ".kiro", ".continue", ".roo", ".opencode",
        ".aider.conf.yml",
    )),
    Named("ask", "git keeps its own records there, and only git should write them", (".git",), (
        ".git/commit_editmsg", ".git/merge_msg", ".git/squash_msg", ".git/tag_editmsg", ".git/notes_editmsg",
        ".git/edit_description",
    )),
    Named("ask", "it has settings of Holdfast", ("holdfast.toml",)),
    Named("ask", "git fetches and runs what it names", (".gitmodules",)),
    Named("ask", "git takes a folder with it for a repository, and runs what its config names", ("head$",)),
    Named("ask", "a tool of the project runs what it says", (
        ".husky", ".githooks", ".pre-commit-config.yaml", "lefthook.yml", ".devcontainer", ".devcontainer.json",
        "mise.toml", ".mise.toml", ".tool-versions", ".npmrc", ".yarnrc", ".yarnrc.yml", ".cargo/config",
        ".cargo/config.toml", "opencode.json", "opencode.jsonc",
    )),
    Named("ask", "it controls a build server", (
        ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".gitlab-ci", ".gitlab/ci", ".circleci",
        ".travis.yml", "azure-pipelines.yml", ".azure-pipelines", "jenkinsfile", "bitbucket-pipelines.yml",
        ".drone.yml", ".cirrus.yml", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml", "appveyor.yml",
        ".appveyor.yml", ".buildkite", ".teamcity", "cloudbuild.yml", "cloudbuild.yaml", "buildspec.yml",
        "buildspec.yaml", ".semaphore", ".forgejo/workflows", ".gitea/workflows",
    )),
)  # fmt: skip
"""The strictest rows come first. The first matching row counts."""

_OF_OTHERS = frozenset({".git/modules", ".git/worktrees"})
"""Git folders of their own are in there, with places of their own: work in a submodule is recorded there."""
_PARTS: Mapping[str, Sequence[str]] = MappingProxyType({
    ".git/info": ("attributes", "exclude", "grafts", "sparse-checkout"),
    ".git/objects/info": ("alternates", "http-alternates"),
})  # fmt: skip
"""Folders in which git also keeps lists of its own, and what else is in them."""
_FIRST = frozenset(name.rstrip("$").partition("/")[0] for row in STEERING for name in row.names)
_BEGUN = tuple(name[:-1] for name in _FIRST if name.endswith(".*"))
"""How names begin whose ends do not matter."""
_ASIDE = re.compile(r"\.put-aside(?:-\d+|-draft)?\Z")
"""How the names end that `tools.aside` gives. No program runs a file for such a name."""
_ODD = re.compile(r"[:~]|[. ](?:\n|\Z)")
"""What a lenient file system leaves out of a name."""
_INVISIBLE = frozenset({"Cf", "Cc", "Mn"})
WILDCARDS = frozenset("*?[")
"""The characters that make a shell word a pattern."""
_CLASSES = ("[:", "[.", "[=")
"""What a pattern may have within brackets: `[[:alpha:]]`."""


def steering(path: str, workspace: str) -> tuple[str, Named] | None:
    """Return the name that makes a file a controlling one, with its row; None for other files.

    Args:
        path: The path as given, or absolute with every link followed. It may have shell wildcards.
        workspace: A name that ends above it does not count, because the user chose it, except `.git`. One that goes
            on inside does: in the workspace `~/.config` the shell still runs `fish/config.fish`.
    """
    whole = path if path.startswith("/") else f"{workspace}/{path}"
    names = _plain(whole)
    if not any(map(_may_be_first, names)) and WILDCARDS.isdisjoint(path):
        return None
    chosen = _plain(workspace)
    # Two folders may differ in their case alone: only the one that was named was chosen.
    is_named = is_inside(workspace, posixpath.normpath(whole))
    is_chosen = is_named and names[: len(chosen)] == chosen and ".git" not in chosen
    for row in STEERING:
        if any(names[-2:] == place.split("/") for place in row.but):
            continue
        is_wild = row.verdict == "deny" and not row.is_plain
        for place in row.names:
            if _leads_to(names, place, len(chosen) if is_chosen else 0, may_be_wild=is_wild):
                return place.rstrip("$"), row
    return None


def steering_below(path: str) -> str:
    """Return a name that makes files in a folder at this path controlling ones: `.config/fish` for `.config`; empty
    if there is none.
    """
    names = _plain(path)
    for row in STEERING:
        for place in row.names:
            parts = place.rstrip("$").split("/")
            if any(names[-end:] == parts[:end] for end in range(1, len(parts))):
                return place
    return ""


def may_be_fixed(name: str) -> bool:
    """Return whether `fixed_places` may find something for a name. It tells most names quickly from the others."""
    return _may_be_first(_plain_name(name))


def may_have_fixed(names: Sequence[str]) -> bool:
    """Return whether `may_be_fixed` may say yes to one of the names. It tells at once of most folders."""
    text = "\n".join(names)
    if not text.isascii() or _ODD.search(text) is not None:
        return True
    lower = text.lower()
    return not _FIRST.isdisjoint(lower.split("\n")) or any(begun in lower for begun in _BEGUN)


def fixed_places(name: str, *, is_folder: bool) -> Iterator[tuple[str, ...]]:
    """Yield what nobody may change at a file or folder of this name, as names below it; nothing below it is all of
    it. An example: `.git` has `hooks`, `config` and more.
    """
    plain = _plain_name(name)
    if _may_be_first(plain):
        for row in STEERING:
            for place in row.names if row.verdict == "deny" else ():
                first, *rest = place.rstrip("$").split("/")
                if _is(plain, first) and not (place in _OF_OTHERS or (place.endswith("$") and is_folder)):
                    yield from ((*rest, name) for name in _PARTS[place]) if place in _PARTS else [tuple(rest)]


def _plain(path: str) -> list[str]:
    """Return the names of a path as the most lenient file system would read them, without `.` and `..`."""
    names: list[str] = []
    for name in path.replace("\\", "/").split("/"):
        if name == "..":
            names[-1:] = []
        elif plain := _plain_name(name):
            names.append(plain)
    return names


def _plain_name(name: str) -> str:
    if not name.isascii():
        shown = (
            char
            for char in unicodedata.normalize("NFKD", name)
            if unicodedata.category(char) not in _INVISIBLE
        )
        name = "".join(shown)
    folded = name.casefold()
    plain = (folded if "[" in folded else folded.partition(":")[0]).rstrip(". ")
    return ".git" if plain.startswith("git~") else plain


def _leads_to(names: Sequence[str], place: str, chosen: int, *, may_be_wild: bool) -> bool:
    """Return whether the names of a path lead to a place, or into it, that is not among the first `chosen` ones."""
    wanted = place.rstrip("$").split("/")
    last = len(names) - len(wanted)
    first = max(chosen + 1 - len(wanted), 0)
    starts = range(max(last, first) if place.endswith("$") else first, last + 1)
    return any(
        all(
            _is(name, want) or (may_be_wild and fits_wildcards(want, name))
            for name, want in zip(names[start : start + len(wanted)], wanted, strict=True)
        )
        for start in starts
    )


def _may_be_first(name: str) -> bool:
    return name in _FIRST or name.startswith(_BEGUN)


def _is(name: str, wanted: str) -> bool:
    if name == wanted:
        return True
    return wanted.endswith(".*") and name.startswith(wanted[:-1]) and _ASIDE.search(name) is None


def fits_wildcards(name: str, word: str) -> bool:
    """Return whether a shell pattern matches a name. A wildcard never matches a leading dot."""
    return not WILDCARDS.isdisjoint(word) and is_matched(name, word)


def is_matched(name: str, pattern: str) -> bool:
    """Return whether a shell pattern matches a name, or may: where it has classes, it stands for anything."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    if "[" in pattern:
        if any(each in pattern for each in _CLASSES):
            pattern = f"{pattern[: pattern.index('[')]}*{pattern[pattern.rfind(']') + 1 :]}"
        pattern = pattern.replace("[^", "[!")
    return fnmatchcase(name, pattern)


# --- reasons ----------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Why a write is denied or needs approval."""

    verdict: Literal["ask", "deny"]
    rule: str
    reason: str
    """The reason as a sentence."""


def steering_problem(given: str, resolved: str, workspace: str, in_git: str = "") -> Problem | None:
    """Return why a write to a path is denied or needs approval; None if it is allowed.

    The person who approves must see what is written, so the file must be named by its own path.

    Args:
        given: The path as given.
        resolved: Where it leads, absolute; empty if that is not known.
        workspace: The folder of the session.
        in_git: Where it lies in the folder of a repository, as `.git/PATH`; empty if it lies in none.
    """
    named, led = steering(given, workspace), steering(resolved, workspace) if resolved else None
    kept = steering(in_git, "") if in_git else None
    found = [each for each in (led, named, kept) if each is not None]
    if not found:
        return None
    rule, row = min(found, key=lambda each: STEERING.index(each[1]))
    if row.verdict == "deny":
        return Problem("deny", rule, f"{given} must not be written ({rule}): {row.why}.")
    if named is None and led is None:
        return Problem(
            "ask", rule, f"Writing {given} needs approval (it is {in_git} of a repository): {row.why}."
        )
    if named is None:
        return Problem(
            "deny", rule, f"{given} leads to another file ({rule}). Name that file by its own path."
        )
    return Problem("ask", rule, f"Writing {given} needs approval ({rule}): {row.why}.")


def own_problem(given: str, own: str, access: Access) -> str:
    """Return why a path into Holdfast's own files is refused, as a sentence; empty if it is allowed.

    Args:
        given: The path as given.
        own: `home`, `home/PATH`, `settings` or `key`; empty if it is not one of Holdfast's own files.
        access: The intended access.
    """
    if own == KEY:
        return f"{given} has the key of Holdfast's stored secrets, which no tool may read or change."
    kind, _, within = own.partition("/")
    if kind == HOME and not (access == "read" and within.partition("/")[0] in OPEN_IN_HOME):
        return f"{given} leads into Holdfast's own home, which no tool may read or change."
    if kind == SETTINGS and access != "read":
        return f"{given} is a settings file of Holdfast, which no tool may change."
    return ""
