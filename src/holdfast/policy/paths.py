"""Rules over the text of a path that no approval can override.

Secret paths are recognised by their components, ignoring case, so a `.ssh` folder is secret everywhere, also in the
workspace. `tools.workspace` resolves and opens paths.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase, translate

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096

_SECRET_FOLDERS = (".ssh", ".aws", ".azure", ".kube", ".gnupg", ".config/gcloud", "/etc/ssh")
_SECRET_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/passwd", ".docker/config.json")
_SECRET_NAMES = (
    ".env", ".env.*", ".netrc", "_netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc",
    "?*.pem", "?*.key", "?*.p12", "?*.pfx", "?*.jks", "?*.keystore", "id_rsa*", "id_ed25519*", "id_ecdsa*", "id_dsa*",
)  # fmt: skip
_SECRET_NAME = re.compile("|".join(map(translate, _SECRET_NAMES)))
_TELLING = (
    "ssh", ".aws", ".azure", ".kube", ".gnupg", "gcloud", "shadow", "passwd", "docker", ".env", "netrc",
    "pgpass", "credentials", "npmrc", "pypirc", "pem", "key", "p12",
    "pfx", "jks", "id_",
)  # fmt: skip
"""Every secret path has one of them."""
_TELLS = re.compile("|".join(map(re.escape, _TELLING)))
_PUBLIC_NAMES = frozenset({".env.example", ".env.sample", ".env.template"})
_PUBLIC_KEY = re.compile(r"id_.*\.pub", re.DOTALL)
_PUBLIC_FILES = ("certifi/cacert.pem", "botocore/cacert.pem", "_credentials/roots.pem")
"""Certificates of public authorities, which packages bring. Other files may have a key after their certificate."""

_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")


def may_be_secret(text: str) -> bool:
    """Return whether a path in a text may be secret. It tells most texts quickly from the others."""
    return not text.isascii() or _TELLS.search(text.lower()) is not None


def secret_rule(path: str) -> str:
    """Return the rule that makes a path secret; empty if it is not.

    Args:
        path: The path as given or resolved, absolute or relative.
    """
    if not may_be_secret(path):
        return ""
    folded = path.casefold()
    names = [part for part in folded.split("/") if part not in ("", ".")]
    whole = ("/" if folded.startswith("/") else "") + "/".join(names)
    for folder in _SECRET_FOLDERS:
        if _has_folder(whole, folder):
            return folder
    for file in _SECRET_FILES:
        if whole == file or (not file.startswith("/") and f"/{whole}".endswith(f"/{file}")):
            return file
    name = names[-1] if names else ""
    if name in _PUBLIC_NAMES or not _SECRET_NAME.match(name):
        return ""
    if _PUBLIC_KEY.fullmatch(name) or whole.endswith(tuple([f"/{each}" for each in _PUBLIC_FILES])):
        return ""
    return next(pattern for pattern in _SECRET_NAMES if fnmatchcase(name, pattern))


def is_kernel_path(path: str, workspace: str) -> bool:
    """Return whether a path lies in /proc, /sys or /dev, unless the workspace does too."""
    return any(
        is_inside(folder, path) and not (is_inside(folder, workspace) and workspace != folder)
        for folder in _KERNEL_FOLDERS
    )


def is_inside(root: str, path: str) -> bool:
    """Return whether a resolved absolute path is the root or lies under it. `/ws2` is not inside `/ws`."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def is_within(roots: Iterable[str], path: str) -> bool:
    """Return whether such a path is one of the roots or lies under one."""
    return any(is_inside(root, path) for root in roots)


def above(path: str) -> list[str]:
    """Return the folders above a relative path, the nearest first."""
    names = path.split("/")[:-1]
    return ["/".join(names[:end]) for end in range(len(names), 0, -1)]


def is_among(path: str, names: Collection[str]) -> bool:
    """Return whether a relative path, or a folder above it, is among the names."""
    return path in names or any(folder in names for folder in above(path))


def malformed(path: str) -> str:
    """Return why no file can have this path, as a sentence; empty if one can."""
    if 0 < len(path) <= MAX_NAME_BYTES and path.isascii() and "\0" not in path:
        return ""
    if not path:
        return "The path is empty. Use `.` for the workspace."
    if "\0" in path:
        return "The path contains a NUL character."
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "The path is not valid Unicode text."
    longest = max(len(part) for part in encoded.split(b"/"))
    if longest > MAX_NAME_BYTES:
        return f"A name in the path is {longest} bytes long. The limit is {MAX_NAME_BYTES}."
    if len(encoded) > MAX_PATH_BYTES:
        return f"The path is {len(encoded)} bytes long. The limit is {MAX_PATH_BYTES}."
    return ""


def _has_folder(whole: str, folder: str) -> bool:
    if folder.startswith("/"):
        return is_inside(folder, whole)
    return f"/{folder}/" in f"/{whole}/"
