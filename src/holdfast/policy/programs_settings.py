"""Settings that make a program run another one, write elsewhere, or talk to another host: `git -c`, and variables.

Whatever changes such a setting makes a person look. Here is what the value of one runs, writes, reads or talks to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase

from holdfast.policy.programs_options import HARMLESS_DEVICES
from holdfast.policy.simple import Word
from holdfast.policy.uses import NOTHING, Use, Uses, merged

_RUNS = (
    "core.pager", "pager.*", "core.editor", "core.sshcommand", "core.fsmonitor", "core.askpass", "core.gitproxy",
    "core.alternaterefscommand", "sequence.editor", "interactive.difffilter", "diff.external", "diff.*.command",
    "diff.*.textconv", "filter.*.clean", "filter.*.smudge", "filter.*.process", "merge.*.driver", "difftool.*.cmd",
    "difftool.*.path", "mergetool.*.cmd", "mergetool.*.path", "browser.*.cmd", "browser.*.path", "man.*.cmd",
    "man.*.path", "gpg.program", "gpg.*.program", "gpg.ssh.defaultkeycommand", "credential.helper",
    "credential.*.helper", "trailer.*.command", "trailer.*.cmd", "remote.*.uploadpack", "remote.*.receivepack",
    "uploadpack.packobjectshook", "submodule.*.update", "web.browser", "sendemail.smtpserver", "sendemail.tocmd",
    "sendemail.cccmd", "alias.*",
)  # fmt: skip
"""Keys of git whose value a shell runs."""
_ONLY_MARKED = ("alias.*", "credential.helper", "credential.*.helper", "submodule.*.update")
"""Keys whose value a shell runs only with a `!` before it. A path runs, too."""
_WORKS_IN = ("core.worktree",)
_READS = ("core.hookspath", "include.path", "includeif.*.path", "core.attributesfile", "core.excludesfile")
_TALKS_TO = (
    "http.proxy",
    "http.*.proxy",
    "https.proxy",
    "remote.*.url",
    "remote.*.pushurl",
    "remote.*.proxy",
)

_RUN_VARIABLES = frozenset(
    {"GIT_SSH_COMMAND", "GIT_SSH", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_EXTERNAL_DIFF",
     "GIT_ASKPASS", "GIT_PROXY_COMMAND", "SSH_ASKPASS", "EDITOR", "VISUAL", "FCEDIT", "PAGER", "MANPAGER",
     "SYSTEMD_PAGER", "BROWSER", "PROMPT_COMMAND", "RSYNC_RSH", "CVS_RSH", "SVN_SSH", "TAR_OPTIONS", "SHELL",
     "RUSTC_WRAPPER", "LESSOPEN", "LESSCLOSE", "PS4"}
)  # fmt: skip
_WRITE_VARIABLES = frozenset(
    {"GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_TRACE", "SSLKEYLOGFILE",
     "HISTFILE", "CARGO_TARGET_DIR", "CARGO_INSTALL_ROOT", "GOBIN", "PIP_TARGET", "PIP_PREFIX", "PIP_LOG",
     "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE", "DESTDIR", "GNUPGHOME", "COVERAGE_FILE", "LESSHISTFILE",
     "npm_config_prefix", "npm_config_cache", "NPM_CONFIG_PREFIX"}
)  # fmt: skip
_READ_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
     "GIT_EXEC_PATH", "BASH_ENV", "ENV", "PYTHONSTARTUP", "LD_PRELOAD", "RUBYOPT"}
)  # fmt: skip
_TEMPLATES = "A template of git may bring programs that git runs, so no command may name one."
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "ftp_proxy"})
_GIT_VALUE = re.compile(r"GIT_CONFIG_VALUE_[0-9]+")
_PATH = re.compile(r"[./~]")
_HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def uses_of_setting(key: str, value: Word) -> Uses:
    """Return what the value of a key of git's configuration runs, reads, writes or talks to."""
    if not value.is_known or value.is_glob:
        return NOTHING
    section, dot, rest = key.partition(".")
    name, text = f"{section.casefold()}{dot}{rest.casefold()}", value.text
    if _is_one_of(name, ("url.*.insteadof", "url.*.pushinsteadof")):
        return _talks_to(value._replace(text=rest.rpartition(".")[0]))
    if _is_one_of(name, _TALKS_TO):
        return _talks_to(value)
    if _is_one_of(name, _WORKS_IN):
        return _file("write", value)
    if name == "init.templatedir" and text:
        return Uses(denies=_TEMPLATES)
    if _is_one_of(name, _READS):
        return _file("read", value)
    if not _is_one_of(name, _RUNS):
        return NOTHING
    if text.startswith("!"):
        return _runs(value._replace(text=text[1:]))
    if name.startswith("alias."):
        return _runs(value._replace(text=f"git {text}"))
    is_name = _is_one_of(name, _ONLY_MARKED) and not _PATH.match(text)
    return NOTHING if is_name else _runs(value)


def uses_of_value(variable: str, value: Word) -> Uses:
    """Return what programs do that read a variable of the environment with this value."""
    if not value.is_known or value.is_glob or not value.text:
        return NOTHING
    if variable in _RUN_VARIABLES or _GIT_VALUE.fullmatch(variable):
        return _runs(value._replace(text=value.text.removeprefix("||").lstrip("|-")))
    if variable in _WRITE_VARIABLES or variable.startswith(("GIT_TRACE_", "GIT_TRACE2")):
        return _file("write", value)
    if variable == "GIT_TEMPLATE_DIR":
        return Uses(denies=_TEMPLATES)
    if variable in _READ_VARIABLES:
        return _file("read", value)
    if variable.casefold() in _PROXIES:
        return _talks_to(value)
    return merged(_by_parameters(value)) if variable == "GIT_CONFIG_PARAMETERS" else NOTHING


def _by_parameters(value: Word) -> Iterator[Uses]:
    """Return what the settings do that git hands on to its own programs: `'core.pager'='less'`."""
    try:
        given = shlex.split(value.text)
    except ValueError:
        return
    for each in given:
        key, _, text = each.partition("=")
        yield uses_of_setting(key, value._replace(text=text))


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _runs(value: Word) -> Uses:
    return Uses(scripts=(value,)) if value.text not in ("", "true", "false") else NOTHING


def _file(access: str, value: Word) -> Uses:
    if not _PATH.match(value.text) or value.text in HARMLESS_DEVICES:
        return NOTHING
    return Uses((Use("write" if access == "write" else "read", value),))


def _talks_to(value: Word) -> Uses:
    """Return the address, as a URL that the list of hosts can judge."""
    text = value.text if _HAS_SCHEME.match(value.text) else f"http://{value.text}"
    host = text.partition("://")[2].rpartition("@")[2]
    return Uses(sends=(value._replace(text=f"http://{host}" if not text.startswith("http") else text),))
