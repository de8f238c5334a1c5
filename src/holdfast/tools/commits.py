"""Brings the commits that were made in a copy of a repository into the repository, as branches of their own.

Neither side's configuration, hooks or remotes count: git works in a view of each (`repository.view_of`). No branch is
ever changed, only new ones are made. So nothing that the user has can be overwritten, and nothing is checked out.
"""

# Pathlib makes an object for each name.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

import msgspec

from holdfast.policy.paths import above
from holdfast.sandbox.system import program_outside
from holdfast.tools.blocking import Refused
from holdfast.tools.cloning import ask_git
from holdfast.tools.own import OwnPlaces
from holdfast.tools.repository import find, view_of, write_config

MOST_TIPS = 50
_HEADS = "refs/heads/"
_QUIET = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.fsckObjects=true")

_Ask = Callable[..., str]


class Tip(msgspec.Struct, frozen=True):
    """A branch of the copy with commits that the repository does not have."""

    branch: str
    """Its name; HEAD, if it is none."""
    commit: str
    count: int
    """How many commits are new."""


def new_tips(copy: str, origin: str, own: OwnPlaces) -> tuple[Tip, ...]:
    """Return the branches of a copy with new commits.

    Raises:
        Refused: git cannot say.
        OSError: one of the repositories cannot be read.
    """
    git = program_outside("git")
    if not git or not all(os.path.lexists(os.path.join(folder, ".git")) for folder in (copy, origin)):
        return ()
    with _asked(git, copy, own) as there, _asked(git, origin, own) as here:
        known = {commit for commit, _ in _refs(here, "refs")}
        tips = {commit: name.removeprefix(_HEADS) for commit, name in _refs(there, _HEADS)}
        with suppress(Refused):  # a branch without a commit
            head = there("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
            tips.setdefault(head, "HEAD")
        new = {
            commit: name for commit, name in tips.items() if commit not in known and not _has(here, commit)
        }
        if len(new) > MOST_TIPS:
            raise Refused(f"The copy has more than {MOST_TIPS} branches with new commits.")
        # The list may be longer than a command line.
        given = "".join(f"^{commit}\n" for commit in known)
        return tuple(
            Tip(
                name,
                commit,
                int(there("rev-list", "--count", "--ignore-missing", "--stdin", given=given + commit)),
            )
            for commit, name in new.items()
        )


def take_tips(copy: str, origin: str, tips: Sequence[Tip], prefix: str, own: OwnPlaces) -> tuple[str, ...]:
    """Make a branch of the repository for each branch of the copy: all of them, or none. Return their names.

    Raises:
        Refused: git cannot do it.
        OSError: one of the repositories cannot be read.
    """
    git = program_outside("git")
    with _asked(git, copy, own) as there, _asked(git, origin, own) as here:
        source = there("rev-parse", "--absolute-git-dir").rstrip("\n")
        here(
            *_QUIET, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
            "--upload-pack=git -c uploadpack.allowAnySHA1InWant=true upload-pack",
            "--", source, *(tip.commit for tip in tips),
        )  # fmt: skip
        taken = {name.removeprefix(_HEADS) for _, name in _refs(here, _HEADS)}
        made: list[str] = []
        for tip in tips:
            made.append(free_branch(f"{prefix}/{tip.branch}", taken))
            taken.add(made[-1])
        # A fetch would move a branch that somebody has made meanwhile.
        lines = (f"create {_HEADS}{name} {tip.commit}\n" for name, tip in zip(made, tips, strict=True))
        here("update-ref", "--stdin", given="".join(lines))
    return tuple(made)


def free_branch(name: str, taken: Collection[str]) -> str:
    """Return the name of a branch, with numbers where others are in the way: below `x`, or above `x/y`, no branch
    can be.
    """
    in_the_way = {*taken}
    found = ""
    for part in (parts := name.split("/"))[:-1]:
        found = _numbered(f"{found}{part}", in_the_way) + "/"
    in_the_way.update(folder for each in taken for folder in above(each))
    return _numbered(found + parts[-1], in_the_way)


def _numbered(name: str, taken: Collection[str]) -> str:
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(each for each in names if each not in taken)


def _refs(ask: _Ask, below: str) -> Iterator[tuple[str, str]]:
    """Yield the commit and the name of each reference."""
    for line in ask("for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", below).splitlines():
        commit, peeled, name = line.split(" ", 2)
        yield peeled or commit, name


def _has(ask: _Ask, commit: str) -> bool:
    """Return whether a reference leads to a commit. An object alone may be left of a killed command."""
    with suppress(Refused):  # there is no such object
        return bool(ask("for-each-ref", "--count=1", f"--contains={commit}"))
    return False


@contextmanager
def _asked(git: str, folder: str, own: OwnPlaces) -> Iterator[_Ask]:
    """Return what asks git about the repository of a folder."""
    with view_of(find(folder, own), own) as view:

        def ask(*arguments: str, given: str = "") -> str:
            return ask_git([git, "--no-pager", *arguments], view.environment, "read the commits", given)

        theirs = os.path.join(view.folder, "theirs")
        write_config(view, ask("config", "--file", theirs, "--no-includes", "--list", "-z"))
        yield ask
