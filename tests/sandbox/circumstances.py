"""Who attacks, and where: as this user, as another one, in namespaces and in another sandbox."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOMEBODY = 54_321
"""A user without a name, whom no machine has."""
_AS_SOMEBODY = """
set -e
cd {folder}; mkdir -p python repository site
mount --bind {base} python; mount --bind {repository} repository; mount --bind {site} site
exec setpriv --reuid {user} --regid {user} --clear-groups env -i HOME={folder} PATH=/usr/local/bin:/usr/bin:/bin \
    TMPDIR={folder}/tmp PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH={libraries} \
    PYTHONPATH={folder}/repository/src:{folder}/repository:{folder}/site python/bin/{python} "$@"
"""
"""Somebody else may not read the interpreter of this user, so it has another place for them."""
_BWRAP = (
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--unshare-user",
    "--unshare-pid",
    "--proc",
    "/proc",
    "--die-with-parent",
)
_UNSHARE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)

NAMES = (
    "here",
    "as somebody else",
    "inside of bubblewrap",
    "inside of unshare",
    "as somebody else, inside of unshare",
)


def is_possible(name: str) -> bool:
    """Whether this machine and this user can have it."""
    needs_root = "somebody" in name
    if needs_root and os.getuid():
        return False
    wrap = _wrapping(name)
    try:
        return (
            not wrap
            or subprocess.run([*wrap, "true"], capture_output=True, timeout=20, check=False).returncode == 0
        )
    except OSError:
        return False


def argv(name: str, folder: Path) -> list[str]:
    """The interpreter under these circumstances, with Holdfast and its tests. The folder becomes the user's."""
    if "somebody" not in name:
        return [*_wrapping(name), sys.executable]
    base = Path(os.path.realpath(sys.executable)).parents[1]
    names: Mapping[str, object] = {
        "folder": folder, "base": base, "repository": REPOSITORY, "site": sysconfig.get_path("purelib"),
        "user": SOMEBODY, "python": Path(os.path.realpath(sys.executable)).name,
        "libraries": folder / "python" / "lib",
    }  # fmt: skip
    (folder / "tmp").mkdir(parents=True)
    for path in (folder, folder / "tmp"):
        os.chown(path, SOMEBODY, SOMEBODY)
    for parent in folder.parents:  # pytest's own folders are for one user
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    script = _AS_SOMEBODY.format(**{key: shlex.quote(str(value)) for key, value in names.items()})
    inner = script.replace("python/bin", f"{shlex.join(_wrapping(name))} python/bin")
    return ["unshare", "--mount", "sh", "-c", inner, "sh"]


def give(name: str, folder: Path) -> Path:
    """Make a folder that belongs to the user under these circumstances."""
    folder.mkdir(parents=True)
    if "somebody" in name:
        os.chown(folder, SOMEBODY, SOMEBODY)
    return folder


def _wrapping(name: str) -> Sequence[str]:
    return _BWRAP if "bubblewrap" in name else _UNSHARE if "unshare" in name else ()
