"""Files that no tool changes, or not unasked: Holdfast's own, and those that steer other programs.

This is the one list. File tools, searches and the judging of commands all go by it. Names are compared as the
most careless file system would take them: without letter case, without characters that nobody sees.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

from holdfast.policy.paths import is_inside

Access = Literal["read", "write", "tree"]
"""`tree`: a write that reaches everything under a folder, as `rm -r` and `mv` do."""

HOME = "home"
SETTINGS = "settings"


class Own(msgspec.Struct, frozen=True):
    """Where Holdfast keeps what is its own."""

    homes: tuple[str, ...] = ()
    """Folders with the journal and all that belongs to it: neither read nor written by any tool."""
    settings: tuple[str, ...] = ()
    """Files of the user and of the administrator: not written by any tool."""


OPEN_IN_HOME: tuple[str, ...] = ()
"""Folders of a home that tools may read, by name."""

# --- names ----------------------------------------------------------------------------------------


class Named(NamedTuple):
    """Some names of files, and what becomes of a write to one of them."""

    verdict: Literal["ask", "deny"]
    why: str
    names: tuple[str, ...]
    """Paths, in any folder, with all that lies under them. A `$` at the end: only that name itself."""


STEERING: tuple[Named, ...] = (
    Named("deny", "it runs commands by itself, or steers how git behaves", (
        ".git$", ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/gitdir", ".git/info",
        ".git/modules", ".git/objects/info", ".git/rebase-apply", ".git/rebase-merge", ".git/sequencer",
        ".git/worktrees", ".gitconfig", ".config/git",
    )),
    Named("deny", "a shell or a login runs it when it starts", (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
        ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".envrc",
        ".config/fish", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".inputrc",
        ".config/environment.d", ".config/autostart", ".config/systemd",
    )),
    Named("deny", "it steers an editor or an agent", (
        ".mcp.json", ".vscode", ".idea", ".agent", ".agents", ".claude", ".codex", ".cursor", ".holdfast",
    )),
    Named("ask", "it holds settings of Holdfast", ("holdfast.toml",)),
    Named("ask", "git fetches and runs what it names", (".gitmodules",)),
    Named("ask", "it says what a build server runs", (
        ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".gitlab-ci", ".gitlab/ci", ".circleci",
        ".travis.yml", "azure-pipelines.yml", ".azure-pipelines", "jenkinsfile", "bitbucket-pipelines.yml",
        ".drone.yml", ".cirrus.yml", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml", "appveyor.yml",
        ".appveyor.yml", ".buildkite", ".teamcity", "cloudbuild.yml", "cloudbuild.yaml", "buildspec.yml",
        "buildspec.yaml", ".semaphore", ".forgejo/workflows", ".gitea/workflows",
    )),
)  # fmt: skip
"""The strictest rows come first, and the first that fits counts."""

_FIRST = frozenset(name.rstrip("$").partition("/")[0] for row in STEERING for name in row.names)
_INVISIBLE = frozenset({"Cf", "Cc", "Mn"})
WILDCARDS = frozenset("*?[")
"""What makes a word of a shell stand for names that fit it."""


def steering(path: str, workspace: str) -> tuple[str, Named] | None:
    """The name by which a file steers other programs, and its row; None for all other files.

    Args:
        path: As given, or absolute with every link followed. It may hold the wildcards of a shell.
        workspace: What lies above it was chosen by the user and does not count, unless it lies in a `.git`.
    """
    parts = _plain(_in_workspace(path, workspace))
    if _FIRST.isdisjoint(parts) and WILDCARDS.isdisjoint(path):
        return None
    for row in STEERING:
        for name in row.names:
            if _holds(parts, name, may_be_wild=row.verdict == "deny"):
                return name.rstrip("$"), row
    return None


def _in_workspace(path: str, workspace: str) -> str:
    if not is_inside(workspace, path) or ".git" in _plain(workspace):
        return path
    return path[len(workspace) :]


def _plain(path: str) -> list[str]:
    """The names of a path, as the most careless file system would read them, `.` and `..` worked out."""
    parts: list[str] = []
    for name in path.replace("\\", "/").split("/"):
        if name == "..":
            parts[-1:] = []
        elif plain := _plain_name(name):
            parts.append(plain)
    return parts


def _plain_name(name: str) -> str:
    if not name.isascii():
        shown = (
            char
            for char in unicodedata.normalize("NFKD", name)
            if unicodedata.category(char) not in _INVISIBLE
        )
        name = "".join(shown)
    plain = name.casefold().partition(":")[0].rstrip(". ")
    return ".git" if plain.startswith("git~") else plain


def _holds(parts: Sequence[str], name: str, *, may_be_wild: bool) -> bool:
    """Whether the names of a path lead to the named place, or into it."""
    wanted = name.rstrip("$").split("/")
    last = len(parts) - len(wanted)
    starts = range(max(last, 0) if name.endswith("$") else 0, last + 1)
    return any(
        all(
            part == want or (may_be_wild and fits_wildcards(want, part))
            for part, want in zip(parts[start : start + len(wanted)], wanted, strict=True)
        )
        for start in starts
    )


def fits_wildcards(name: str, word: str) -> bool:
    """Whether a shell would put the name in place of a word with wildcards: a dot in front is never meant by one."""
    if WILDCARDS.isdisjoint(word) or (name.startswith(".") and not word.startswith(".")):
        return False
    return fnmatchcase(name, word)


# --- what is said about a path ----------------------------------------------------------------------


class Problem(NamedTuple):
    """Why a write is not simply done."""

    verdict: Literal["ask", "deny"]
    rule: str
    reason: str
    """A sentence."""


def steering_problem(given: str, resolved: str, workspace: str) -> Problem | None:
    """What speaks against a write to a path, by its name; None when nothing does.

    Whoever is asked must see what is written: a file that is asked about must be named by its own path.
    """
    named, led = steering(given, workspace), steering(resolved, workspace) if resolved else None
    found = [each for each in (led, named) if each is not None]
    if not found:
        return None
    rule, row = min(found, key=lambda each: STEERING.index(each[1]))
    if row.verdict == "deny":
        return Problem("deny", rule, f"{given} is not written ({rule}): {row.why}.")
    if named is None:
        return Problem("deny", rule, f"{given} leads to another file ({rule}). Name that by its own path.")
    return Problem("ask", rule, f"{given} needs a person's yes ({rule}): {row.why}.")


def own_problem(given: str, own: str, access: Access) -> str:
    """Why a path into what is Holdfast's own is refused, as a sentence; empty when it is not.

    Args:
        given: As it was named.
        own: `home` or `home/PATH`, `settings`, or empty for what is not Holdfast's own.
        access: What would be done there.
    """
    kind, _, within = own.partition("/")
    if kind == HOME and not (access == "read" and within.partition("/")[0] in OPEN_IN_HOME):
        return f"{given} leads into Holdfast's own home, which no tool reads or changes."
    if kind == SETTINGS and access != "read":
        return f"{given} is a settings file of Holdfast, which no tool changes."
    return ""
