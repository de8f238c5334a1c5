"""The medium-risk list: what a person has to look at, and why. This is the only place that has it.

The reasons are parts of a sentence that begins with the name of the program.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.protocol.launchers import is_interpreter

MEDIUM_RISK: Mapping[str, str] = {
    "chmod": "changes who may use a file",
    "chown": "changes who may use a file",
    "chgrp": "changes who may use a file",
    "chattr": "changes who may use a file",
    "setfacl": "changes who may use a file",
    "kill": "ends processes",
    "pkill": "ends processes",
    "killall": "ends processes",
    "fuser": "ends processes",
    "truncate": "cuts off what files contain",
    "shred": "destroys what files contain",
    "dd": "overwrites what it is given",
    "split": "makes many files",
    "csplit": "makes many files",
    "tar": "unpacks or packs many files",
    "cpio": "unpacks or packs many files",
    "zip": "unpacks or packs many files",
    "unzip": "unpacks or packs many files",
    "gzip": "replaces the files that it is given",
    "gunzip": "replaces the files that it is given",
    "bzip2": "replaces the files that it is given",
    "xz": "replaces the files that it is given",
    "zstd": "makes files beside those that it is given",
    "patch": "changes the files that a patch names",
    "install": "copies programs and changes who may use them",
    "rsync": "copies whole folders, also to other machines",
    "mount": "changes the file system",
    "umount": "changes the file system",
    "crontab": "makes something run later",
    "at": "makes something run later",
    "batch": "makes something run later",
    "systemctl": "changes services of the machine",
    "service": "changes services of the machine",
    "ps": "may show the environment of other processes",
    "gdb": "looks into other processes",
    "strace": "looks into other processes",
    "ltrace": "looks into other processes",
    "lsof": "looks into other processes",
    "docker": "reaches the whole machine through its daemon",
    "podman": "reaches the whole machine through its daemon",
    "nerdctl": "reaches the whole machine through its daemon",
    "kubectl": "reaches other machines",
    "man": "shows a page through another program",
    "less": "may run other programs",
    "more": "may run other programs",
}
"""Programs whose effect people want to know of before it happens."""

BUILDS = frozenset(
    {"make", "gmake", "cmake", "ninja", "meson", "bazel", "gradle", "mvn", "ant", "cargo", "rustc", "go", "gcc",
     "g++", "cc", "c++", "clang", "clang++", "ld", "javac", "tsc", "dotnet", "msbuild", "swift", "zig", "ghc",
     "scons", "just", "task", "pytest", "tox", "nox", "jest", "vitest", "mocha"}
)  # fmt: skip
"""Programs that run what a project says."""

INSTALLS = frozenset(
    {"pip", "pip3", "pipx", "uv", "uvx", "poetry", "pdm", "conda", "mamba", "npm", "npx", "yarn", "pnpm", "gem",
     "bundle", "composer", "apt", "apt-get", "dpkg", "dnf", "yum", "rpm", "pacman", "apk", "brew", "snap",
     "flatpak", "nix", "helm"}
)  # fmt: skip
"""Programs that fetch and run what others wrote."""


def why_it_asks(name: str) -> str:
    """Return why a person must look at a program that the table does not read, as a sentence."""
    if name in MEDIUM_RISK:
        return f"`{name}` {MEDIUM_RISK[name]}."
    if is_interpreter(name):
        return f"`{name}` runs code."
    for names, why in (
        (BUILDS, "runs what a project says"),
        (INSTALLS, "installs programs"),
    ):
        if name in names:
            return f"`{name}` {why}."
    return f"What `{name}` does is not known."
