"""Programs that run what they are given. This is the only place that names them.

Rules that allow a program, grants, and the table of programs use it. Programs that run what a project says, like
`make`, are not here: what they run is written in the workspace, and the words do not choose it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "yash", "fish", "csh", "tcsh", "rbash", "busybox", "toybox",
     "pwsh", "powershell"}
)  # fmt: skip

INTERPRETERS = frozenset(
    {"python", "pypy", "ipython", "perl", "ruby", "irb", "node", "nodejs", "deno", "bun", "php", "lua", "luajit",
     "tclsh", "wish", "expect", "rscript", "r", "julia", "ghci", "guile", "racket", "groovy", "jshell", "java",
     "osascript", "ed", "ex", "vi", "vim", "nvim", "emacs", "nano"}
)  # fmt: skip
"""Programs that run code which the gates do not read. Their names may have a version at the end."""

_TEXTS = frozenset(
    {"awk", "gawk", "mawk", "nawk", "sed", "gdb", "lldb", "npx", "uvx", "pipx", "at", "batch", "crontab"}
)
"""Programs that run a text or a package that they are given, also on their standard input."""

PRIVILEGED = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "sudoedit"})
"""Programs that take the rights of somebody else. They never run."""

_WRAPPERS = frozenset(
    {"env", "nohup", "time", "timeout", "nice", "ionice", "chrt", "taskset", "stdbuf", "setsid", "setpriv", "xargs",
     "parallel", "watch", "chroot", "unshare", "nsenter", "bwrap", "firejail", "proot", "fakeroot", "script",
     "strace", "ltrace", "perf", "valgrind", "hyperfine", "flock", "systemd-run", "machinectl", "dbus-run-session",
     "xvfb-run", "ssh", "sshpass", "autossh", "mosh", "rsh", "socat", "unbuffer", "rlwrap", "gosu", "sg", "find",
     "fd", "entr", "direnv", "dotenv"}
)  # fmt: skip

_WORDS_OF_SHELLS = frozenset(
    {"command", "builtin", "exec", "eval", "source", ".", "cd", "pushd", "popd", "alias", "unalias", "export", "set",
     "unset", "trap", "hash", "read", "declare", "typeset", "local", "readonly", "enable", "shopt", "mapfile",
     "readarray", "coproc", "!", "{", "if", "then", "elif", "else", "while", "until", "for", "do", "case", "select",
     "function", "[["}
)  # fmt: skip
"""Words that run a text, or change what later words mean."""

LAUNCHERS = SHELLS | INTERPRETERS | _TEXTS | PRIVILEGED | _WRAPPERS | _WORDS_OF_SHELLS
"""What runs whatever it is given. A rule that allowed one of them would allow everything."""
_VERSION = re.compile(r"[0-9.]+\Z")


class Runner(msgspec.Struct, frozen=True):
    """A program that runs what it is given in some ways of using it."""

    runs: tuple[str, ...] = ()
    """The subcommands that run the words after them."""
    does_not: frozenset[str] | None = None
    """The subcommands that run nothing, if every other use does; None: only `runs` counts."""
    options: tuple[str, ...] = ()
    """Options that name a program to run, anywhere in its words. With `=`, a value may be attached."""
    valued: frozenset[str] = frozenset()
    """Options before the subcommand whose value is a word of its own."""


_ALWAYS = Runner(does_not=frozenset())
_IN_CONTAINERS = Runner(
    does_not=frozenset(
        {"ps", "logs", "images", "inspect", "stats", "version", "info", "top", "port", "diff", "history", "pull",
         "search", "events"}
    )
)  # fmt: skip
_ENVIRONMENTS = Runner(("run", "exec", "shell"))
"""Programs that run something in an environment of a project."""
RUNNERS: Mapping[str, Runner] = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), _IN_CONTAINERS),
    "kubectl": Runner(
        does_not=frozenset({"get", "describe", "logs", "top", "explain", "version", "api-resources", "api-versions"})
    ),
    **dict.fromkeys(("tmux", "screen", "zellij", "byobu", "dtach", "lxc", "vagrant", "qemu"), _ALWAYS),
    **dict.fromkeys(("sqlite3", "psql", "mysql", "mariadb", "less", "more", "man"), _ALWAYS),
    "uv": Runner(("run", "x", "tool run")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), Runner(("exec", "x", "dlx", "create", "init", "node"))),
    **dict.fromkeys(("poetry", "pdm", "hatch", "rye", "pixi", "pipenv"), _ENVIRONMENTS),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _ENVIRONMENTS),
    **dict.fromkeys(("bundle", "gem", "composer", "rbenv", "pyenv", "asdf", "mise"), Runner(("exec", "x", "run"))),
    "nix": Runner(("run", "shell", "develop")),
    "go": Runner(("run", "tool"), options=("-exec=", "-toolexec=", "-vettool=")),
    "git": Runner(
        ("bisect run", "submodule foreach", "rebase", "filter-branch", "difftool", "mergetool", "for-each-repo"),
        options=("--upload-pack=", "--receive-pack=", "--exec=", "--extcmd=", "--open-files-in-pager="),
        valued=frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}),
    ),
    "tar": Runner(
        options=("--to-command=", "--checkpoint-action=", "--use-compress-program=", "--info-script=",
                 "--new-volume-script=", "--rsh-command=", "-I", "-F")
    ),
    "rsync": Runner(options=("--rsh=", "--rsync-path=", "-e")),
    "zip": Runner(options=("--unzip-command=", "-TT")),
    "sort": Runner(options=("--compress-program=",)),
    "rg": Runner(options=("--pre=", "--hostname-bin=")),
    "split": Runner(options=("--filter=",)),
}  # fmt: skip
"""Programs with words that run what follows, and words that do not."""


def is_launcher(program: str) -> bool:
    """Return whether a program runs whatever it is given. It may be a path, and have a version in its name."""
    return _is_one_of(LAUNCHERS, program)


def is_interpreter(program: str) -> bool:
    """Return whether a program runs code. It may be a path, and have a version in its name."""
    return _is_one_of(INTERPRETERS, program)


def may_launch(program: str) -> bool:
    """Return whether a program runs what it is given, always or in some ways of using it."""
    return is_launcher(program) or _name(program) in RUNNERS


def chooses(words: Sequence[str], given: int) -> bool:
    """Return whether somebody who adds words to a command chooses what it runs.

    Args:
        words: The program and its words. More may follow, if it ends where the added words begin.
        given: How many of them are fixed.
    """
    if is_launcher(words[0]):
        return True
    runner = RUNNERS.get(_name(words[0]))
    if runner is None:
        return False
    if any(_names_program(runner, word) for word in words[given:]):
        return True
    if given > 1 and "=" not in words[given - 1] and _names_program(runner, words[given - 1]):
        return True  # its value comes next
    if not runner.runs and runner.does_not is None:
        return False
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in runner.valued else 1
    if at > given:  # an option before the subcommand, or its value, is not fixed
        return True
    if at == len(words):
        return runner.does_not is not None
    if runner.does_not is not None:
        return words[at] not in runner.does_not
    return _chooses_inner(runner, words[at:], given - at)


def may_choose(words: Sequence[str]) -> bool:
    """Return whether words that follow may name the subcommand of a program, and so what it runs."""
    runner = RUNNERS.get(_name(words[0]))
    named = [word for word in words[1:] if not word.startswith("-")]
    begins = runner is not None and any(each.split()[: len(named)] == named for each in runner.runs)
    return begins or not named


def _chooses_inner(runner: Runner, words: Sequence[str], given: int) -> bool:
    """Return the same, for the words from the subcommand on."""
    for subcommand in runner.runs:
        named = subcommand.split()
        count = len(named)
        if list(words[:count]) == named:
            is_fixed = given > count and not words[count].startswith("-")
            return not is_fixed or chooses(words[count:], given - count)
    return False


def _names_program(runner: Runner, word: str) -> bool:
    """Return whether a word is an option that names a program. A long one may be abbreviated, a short one joined."""
    for option in runner.options:
        name, said = option.rstrip("="), word.partition("=")[0]
        if name.startswith("--"):
            is_named = len(said) > len("--") and name.startswith(said)
        elif option.endswith("="):
            is_named = said.lstrip("-") == name[1:] and said.startswith("-")
        else:
            is_named = word.startswith("-") and not word.startswith("--") and name[1:] in word
        if is_named:
            return True
    return False


def _is_one_of(names: frozenset[str], program: str) -> bool:
    name = _name(program)
    return name in names or _VERSION.sub("", name) in names


def _name(program: str) -> str:
    return program.rsplit("/", 1)[-1].casefold()
