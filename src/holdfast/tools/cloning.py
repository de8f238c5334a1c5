"""Clones the repository of a workspace for a copy of it: history, branches and what is staged.

A worktree would share its stash, branches and config with the repository of the user. A clone shares nothing, not
even hard links of objects: through one, a command could change an object of the user. It has no hooks and no remotes.
Of the config it has how files are compared, and who commits. So it holds no credentials.
"""

# Pathlib cannot open relative to a descriptor.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.sandbox.work_folder import work_folder
from holdfast.tools.blocking import Refused
from holdfast.tools.ignoring import NO_HOOKS, bare_environment
from holdfast.tools.own import OwnPlaces
from holdfast.tools.repository import KEPT_KEYS, Repository, copy_small, per_worktree
from holdfast.tools.workspace import Root, open_to_read

_LIMIT_S = 600.0
_NAMES = ("user.name", "user.email")
"""Who commits."""
_ERROR_CHARS = 300


def clone(git: str, repository: Repository, to: Path, own: OwnPlaces) -> tuple[str, ...]:
    """Make the folder `.git` in a copy of the workspace. Return the files that the repository knows.

    Args:
        git: Git's file.
        repository: The repository of the workspace. Its top is the workspace.
        to: The copy, without its files yet.
        own: Holdfast's own files, which are not read.

    Raises:
        Refused: the repository cannot be cloned.
    """
    made = to / ".git"
    with work_folder("holdfast-clone-", own.homes, [repository.top]) as home:
        # The repository may belong to somebody else, as in a container. Git asks for this word then.
        Path(home, ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
        environment = bare_environment(home)

        def run(*arguments: str) -> str:
            return ask_git([git, *arguments], environment, "clone the repository")

        run(
            *("clone", "--quiet", "--mirror", "--local", "--no-hardlinks", "--dissociate", "--template="),
            *("--", repository.top, str(made)),
        )
        config = ("config", "--file", str(made / "config"))
        with suppress(Refused):
            run(*config, "--remove-section", "remote.origin")
        run(*config, "core.bare", "false")
        theirs = os.path.join(repository.common, "config")
        for entry in run("config", "--file", theirs, "--no-includes", "--list", "-z").split("\0"):
            key, has_value, value = entry.partition("\n")
            if key in KEPT_KEYS or key in _NAMES:
                run(*config, "--replace-all", key, value if has_value else "true")
        if os.path.lexists(os.path.join(repository.common, "shallow")):
            _add_objects(repository.common, made, own)  # git clones such a one without what is only staged
        (made / "info").mkdir(exist_ok=True)
        for source, names in (
            (repository.folder, ("HEAD", *per_worktree(repository))),
            (repository.common, ("info/exclude",)),
        ):
            for name in names:
                with suppress(FileNotFoundError):
                    copy_small(source, name, own, str(made / name))
        if not (made / "index").exists():
            return ()
        listed = run("--git-dir", str(made), "--work-tree", str(to), "ls-files", "-z", "--cached")
        return tuple(name for name in listed.split("\0") if name)


def _add_objects(common: str, made: Path, own: OwnPlaces) -> None:
    """Add the objects that a clone does not have."""
    # Git has them in folders of `objects`, and none deeper.
    for folder in Path(common, "objects").iterdir():
        is_followed = folder.is_dir() and not folder.is_symlink() and folder.name != "info"
        for path in folder.iterdir() if is_followed else ():
            target = made / "objects" / folder.name / path.name
            if path.is_file() and not path.is_symlink() and not target.exists():
                target.parent.mkdir(exist_ok=True)
                name = os.path.join("objects", folder.name, path.name)
                # A command in the workspace may put a link in place of a folder at any moment.
                with (
                    open_to_read(Root(common, own), name) as (fd, _),
                    open(fd, "rb", closefd=False) as file,
                    target.open("xb") as copy,
                ):
                    shutil.copyfileobj(file, copy)


def ask_git(command: Sequence[str], environment: Mapping[str, str], what: str, given: str = "") -> str:
    """Return what git prints. It runs no hook. `what`: what it is to do. `given`: what it reads.

    Raises:
        Refused: it fails, or takes too long.
    """
    try:
        ended = subprocess.run(
            [command[0], *NO_HOOKS, *command[1:]],
            env=dict(environment),
            cwd=environment["HOME"],
            input=os.fsencode(given),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"git took more than {_LIMIT_S:.0f} seconds to {what}.") from None
    if ended.returncode:
        said = " ".join(ended.stderr.decode(errors="replace").split())
        # Whole words only: nobody masks a part of a secret.
        shown = said if len(said) <= _ERROR_CHARS else said[-_ERROR_CHARS:].partition(" ")[2]
        raise Refused(f"git cannot {what}: {shown or f'it ended with {ended.returncode} and said no more'}")
    return os.fsdecode(ended.stdout)
