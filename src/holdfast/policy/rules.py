"""The policy rules: one visible list. The strictest decision counts.

The dispatcher collects the facts (where a path leads, what the arguments are), and the core asks people.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from holdfast.policy.bounded import risk_of
from holdfast.policy.commands import Command, catastrophe
from holdfast.policy.listed import ONE_FILE, Place, Program, objects, permits_tool, permitting, place_of
from holdfast.policy.mentions import secret_named
from holdfast.policy.paths import is_inside, is_kernel_path, may_be_secret, secret_rule
from holdfast.policy.protected import Access, own_problem, steering_problem
from holdfast.policy.urls import url_problem
from holdfast.protocol.allowed import AllowedPath, access_to
from holdfast.protocol.answers import ANSWER
from holdfast.protocol.rules import SHELL, Layer, PolicyRule
from holdfast.protocol.search import WEB_SEARCH
from holdfast.protocol.settings import Autonomy, Policy, Settings
from holdfast.protocol.tools import EVERYTHING, Decision, Effect, Resource
from holdfast.redact import begin_of

Verdict = Literal["allow", "ask", "deny"]

MOST_PATHS = 16
"""A call that names more of them runs alone: to compare so many with those of 127 other calls takes long."""
_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


class PathFact(msgspec.Struct, frozen=True):
    """A path that a call names, with its target."""

    given: str
    resolved: str
    """Absolute, with every symbolic link followed; empty if it leads out of the workspace or nowhere."""
    problem: str = ""
    """Why it cannot be resolved inside the workspace, as a sentence."""
    access: Access = "write"
    own: str = ""
    """`home`, `home/PATH` or `settings` for Holdfast's own files; otherwise empty."""
    in_git: str = ""
    """Where a file that is written lies in the folder of a repository, as `.git/PATH`; otherwise empty."""


_NEEDS: Mapping[Effect, str] = {
    "read": "Reading",
    "write": "Writing files",
    "exec": "Running commands",
    "network": "Network access",
    "ask": "Asking a question",
    "tell": "Telling something",
}


NEED_HOSTS = frozenset({"web_fetch", "http_request"})
"""Built-in tools that reach only listed hosts."""

_READS_THE_WEB = frozenset({"web_fetch"})
"""Built-in tools that send nothing but the address: a person who lists its host agrees to that."""

_SENDS_REQUESTS = frozenset({"http_request"})
"""Built-in tools of which the same holds if they only ask, without a body."""

_SOCKETS = ("/dev/tcp/", "/dev/udp/")
_SHOWN = "A person can show its folder to commands with [sandbox] read, or write."
"""What a shell takes for a connection when it is the target of a redirection."""

SANDBOXED = "sandboxed"
"""The rule that lets a command run because it is in a sandbox without network."""
_NO_SANDBOX = '[policy] sandboxed counts only in a sandbox, and [sandbox] mode is "unsafe".'

_LAYERS: Mapping[Layer, str] = {
    "admin": "The administrator's file",
    "user": "The user's configuration",
    "project": "The project file",
}


class Facts(msgspec.Struct, frozen=True):
    """Everything that the rules look at."""

    tool: str
    effect: Effect
    autonomy: Autonomy
    workspace: str
    is_built_in: bool = False
    """Whether the tool comes with Holdfast, so that its name says what it does."""
    allow_tools: tuple[str, ...] = ()
    """Globs; empty means all."""
    deny_tools: tuple[str, ...] = ()
    paths: tuple[PathFact, ...] = ()
    commands: tuple[Command, ...] = ()
    """Commands of a shell."""
    words: tuple[PathFact, ...] = ()
    """The paths that the commands name, as far as they are understood. They may lie anywhere."""
    unread: str = ""
    """Why not all words of the commands were looked at; empty if they were."""
    beyond: str = ""
    """The same, if so much was left out that it may be there to hide something."""
    unproved: str = ""
    """The first file that the commands use and that may lie outside of the workspace, or may be lost, with the reason
    as a sentence; empty if all are fine.
    """
    risk: str = ""
    """The first of them that a sandbox without network does not bound: a file that may be lost, or a secret."""
    outside: str = ""
    """The first file outside of the workspace that the commands use for certain; empty if there is no such file."""
    policy: Policy = Policy()
    """The rules of the configuration."""
    programs: tuple[Program, ...] = ()
    """The simple commands in the commands, if a rule of the configuration names a program."""
    allowed: tuple[AllowedPath, ...] | None = None
    """The paths that tools may use, from the root of the disk and with every link followed; None: the whole
    workspace.
    """
    urls: tuple[str, ...] = ()
    only_asks: bool = False
    """Whether the call is an HTTP request that changes nothing, and has no body."""


Rule = Callable[[Facts], Decision | None]


def judge(facts: Facts) -> tuple[Decision, ...]:
    """Return the decisions of all rules that apply, in the order of `RULES`; never empty."""
    names_something = facts.paths or facts.commands or facts.words or facts.urls
    return _judged(facts) if names_something else _judged_alike(facts)


def _judged(facts: Facts) -> tuple[Decision, ...]:
    return tuple([decision for rule in RULES if (decision := rule(facts)) is not None])


@functools.lru_cache(maxsize=256)
def _judged_alike(facts: Facts) -> tuple[Decision, ...]:
    """Judge the calls of a tool that name nothing: their facts are the same each time."""
    return _judged(facts)


def strictest(decisions: Sequence[Decision]) -> Decision:
    """Return the decision that counts: deny, then ask, then allow, and the first of equal ones."""
    if len(decisions) == 1:
        return decisions[0]
    return max(decisions, key=lambda decision: _STRICTNESS[decision.verdict])


def touched(facts: Facts) -> tuple[Resource, ...]:
    """What the call touches: the paths that it names, or anything where nobody can tell or where they are many. What
    reads the web may read what an earlier call made, on a server of this machine.
    """
    if facts.is_built_in and _only_asks(facts):
        return (Resource("read"),)
    if facts.effect not in ("read", "write") or facts.commands or len(facts.paths) > MOST_PATHS:
        return EVERYTHING
    return tuple([Resource(facts.effect, path.resolved) for path in facts.paths]) or (Resource(facts.effect),)


def is_offered(tool: str, allow_tools: tuple[str, ...], deny_tools: tuple[str, ...]) -> bool:
    """Return whether the globs of a run allow a tool. A denying glob wins."""
    return not _fits(tool, deny_tools) and (not allow_tools or _fits(tool, allow_tools))


def offers(tool: str, settings: Settings) -> bool:
    """Return whether a run has a tool. Its globs say so; whether it has `answer`, its conduct says. A tool that needs
    a listed host is of no use without one.
    """
    if tool == ANSWER:
        return settings.conduct.is_calibrated
    if tool in NEED_HOSTS and not settings.policy.allowed_hosts:
        return False
    if tool == WEB_SEARCH and not settings.policy.search:
        return False
    is_chosen = is_offered(tool, settings.tools.allow_tools, settings.tools.deny_tools)
    return is_chosen and is_configured(tool, settings.policy)


def is_configured(tool: str, policy: Policy) -> bool:
    """Return whether the configuration leaves a tool to runs. A denying glob wins."""
    return _fits(tool, policy.offered) and not _fits(tool, tuple([each.text for each in policy.withheld]))


@functools.lru_cache(maxsize=1_024)
def _fits(tool: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, glob) for glob in globs)


def tool_globs(facts: Facts) -> Decision | None:
    """Deny a tool that this run may not use."""
    if facts.tool == ANSWER:
        return None
    if not is_configured(facts.tool, facts.policy):
        return _deny("tool", f"[tools] allow and deny do not leave the tool {facts.tool} to runs.")
    if not is_offered(facts.tool, facts.allow_tools, facts.deny_tools):
        return _deny("tool", f"The tool {facts.tool} is not allowed in this run.")
    return None


def hard_floor(facts: Facts) -> Decision | None:
    """Deny catastrophes under every autonomy. Nobody can approve them."""
    for command in facts.commands:
        if disaster := catastrophe(command):
            return _deny("hard-floor", f"The command was refused: it looks like {disaster}.")
    for path in facts.paths:
        if any(is_kernel_path(name, facts.workspace) for name in (path.given, path.resolved)):
            return _deny("hard-floor", f"{path.given}: file tools may not use /proc, /sys and /dev.")
    return None


def secret_paths(facts: Facts) -> Decision | None:
    """Deny reading and writing of keys, credentials and account files, wherever they lie."""
    for path in facts.paths:
        if rule := secret_rule(path.given) or secret_rule(path.resolved):
            return _deny("secret-path", f"{path.given} names a secret ({rule}). Work without its content.")
    is_telling = may_be_secret("\n".join([path.resolved for path in facts.words])) if facts.words else False
    for path in facts.words if is_telling else ():
        if rule := secret_rule(path.resolved):
            return _deny("secret-path", f"{path.given} leads to a secret ({rule}). Work without its content.")
    for command in facts.commands:
        if word := secret_named(command):
            return _deny(
                "secret-path", f"The command names a secret path ({word}). Work without its content."
            )
        if command.pieced:
            reason = f"The command has the name of a secret in pieces ({command.pieced}). Work without its content."
            return _deny("secret-path", reason)
    return None


def inside_workspace(facts: Facts) -> Decision | None:
    """Deny paths outside the workspace to file tools."""
    for path in facts.paths:
        if path.problem:
            return _deny("workspace", path.problem)
    return None


def allowed_places(facts: Facts) -> Decision | None:
    """Deny paths of the workspace that the configuration does not allow, or only allows to read."""
    if facts.allowed is None:
        return None
    if facts.commands and not facts.allowed:
        return _deny("allowed-path", "No command may run: [policy] allowed_paths allows nothing.")
    for path in (*facts.paths, *facts.words):
        if not path.resolved or not is_inside(facts.workspace, path.resolved):
            continue
        access = _least_access(path, facts)
        if access == 0:
            return _deny("allowed-path", f"{path.given} is not in [policy] allowed_paths.")
        if access == 1 and path.access != "read":
            return _deny("allowed-path", f"{path.given} may only be read, as [policy] allowed_paths says.")
    return None


def _least_access(path: PathFact, facts: Facts) -> int:
    """Return what is allowed at a path, and under it if the call may go there, on any file system."""
    allowed = facts.allowed or ()
    folded = [each._replace(path=each.path.casefold()) for each in allowed]
    places = [path.resolved]
    if path.access == "tree" or (path in facts.paths and facts.tool not in ONE_FILE):
        places += [each.path for each in allowed if is_inside(path.resolved, each.path)]
    return min(min(access_to(each, allowed), access_to(each.casefold(), folded)) for each in places)


def egress(facts: Facts) -> Decision | None:
    """Deny addresses whose host is not listed, or that programs may read in different ways."""
    if facts.tool == WEB_SEARCH and facts.is_built_in and not facts.policy.search:
        return _deny("egress", "No search engine is configured ([search] engines). Work without a search.")
    for url in facts.urls:
        if (problem := url_problem(url, facts.policy.allowed_hosts)) is not None:
            return _deny(*problem)
    unknown = ""
    for command in facts.commands:
        for step in command.simple:
            for target in (each.target for each in step.command.redirections):
                if target.text.startswith(_SOCKETS):
                    return _deny("egress", f"{target.text} is a connection. No redirection may open one.")
                unknown = unknown or (
                    "" if target.is_known or not target.text.startswith("/dev") else target.text
                )
            for word in step.uses.sends:
                if not word.is_known or word.is_glob:
                    unknown = unknown or word.text
                elif (problem := url_problem(word.text, facts.policy.allowed_hosts)) is not None:
                    return _deny(*problem)
    if unknown:
        reason = f"Where `{begin_of(unknown, 80)}` leads is known only when the command runs, so it needs approval."
        return Decision("policy", "ask", "egress", reason)
    return None


def outside_files(facts: Facts) -> Decision | None:
    """Deny files outside of the workspace to commands that use them for certain."""
    if not facts.outside:
        return None
    # Without a sandbox, these settings show nothing.
    advice = "" if facts.policy.walls.backend == "unsafe" else f" {_SHOWN}"
    return _deny("outside", f"{facts.outside} is outside of the workspace. Work without it.{advice}")


def own_places(facts: Facts) -> Decision | None:
    """Deny access to Holdfast's journal and settings under every autonomy."""
    for path in (*facts.paths, *facts.words):
        if problem := own_problem(path.given, path.own, path.access):
            return _deny("own", problem)
    return None


def steering_files(facts: Facts) -> Decision | None:
    """Deny, or ask about, writing files that control other programs or Holdfast."""
    found = [
        problem
        for path in (*facts.paths, *facts.words)
        if path.access != "read"
        and (problem := steering_problem(path.given, path.resolved, facts.workspace, path.in_git)) is not None
    ]
    if not found:
        return None
    verdict, rule, reason = next((each for each in found if each.verdict == "deny"), found[0])
    return Decision(by="policy", verdict=verdict, rule=f"steering:{rule}", reason=reason)


def hook_programs(facts: Facts) -> Decision | None:
    """Deny writing what a hook runs: the next hook would run it with the user's permissions, and nobody is asked."""
    if not facts.policy.hooks:
        return None
    files = [file for hook in facts.policy.hooks for file in hook.files]
    for path in (*facts.paths, *facts.words):
        if path.access != "read" and any(
            file == path.resolved or (path.access == "tree" and is_inside(path.resolved, file))
            for file in files
        ):
            return _deny("hook-program", f"{path.given} has what a hook runs, and no tool may change it.")
    return None


def listed_rules(facts: Facts) -> Decision | None:
    """Deny, or ask about, what a rule of the configuration matches."""
    if not (facts.policy.deny or facts.policy.ask):
        return None
    places = _places(facts, (*facts.paths, *facts.words))
    listed: tuple[tuple[Verdict, str, tuple[PolicyRule, ...]], ...]
    listed = (("deny", "denies", facts.policy.deny), ("ask", "asks about", facts.policy.ask))
    perhaps: Decision | None = None
    for verdict, does, rules in listed:
        for rule in rules:
            match = objects(rule, facts.tool, facts.programs, places, facts.workspace)
            if match == "is":
                reason = f"{_LAYERS[rule.layer]} {does} it by the rule {rule.text}."
                return Decision("policy", verdict, f"{verdict}:{rule.text}", reason)
            if match == "may" and perhaps is None:
                reason = f"{_LAYERS[rule.layer]} {does} {rule.text}, and what runs here is known only when it runs."
                perhaps = Decision("policy", "ask", f"{verdict}:{rule.text}", reason)
    return perhaps


def _places(facts: Facts, paths: Sequence[PathFact]) -> tuple[Place, ...]:
    return tuple(
        place_of(
            path.given,
            path.resolved,
            path.access,
            facts.workspace,
            has_more=path in facts.paths and facts.tool not in ONE_FILE,
        )
        for path in paths
    )


def _permission(facts: Facts) -> PolicyRule | None:
    """Return the rule of the configuration that allows the call; None if no rule does."""
    rules = facts.policy.allow
    if not rules:
        return None
    if facts.tool == SHELL:
        files = {word: program.file for program in facts.programs if (word := program.words[0]) is not None}
        return permitting(rules, facts.commands, files, facts.workspace) if facts.commands else None
    places = _places(facts, facts.paths)
    return next((rule for rule in rules if permits_tool(rule, facts.tool, places, facts.workspace)), None)


def hidden_characters(facts: Facts) -> Decision | None:
    """Deny a command with characters that do not show, or that change the order of others."""
    for command in facts.commands:
        if command.hidden:
            reason = f"The command has characters that a person cannot see: {command.hidden}. Leave them out."
            return _deny("hidden", reason)
    return None


def never(facts: Facts) -> Decision | None:
    """Deny what the table of programs denies."""
    for command in facts.commands:
        for step in command.simple:
            if step.uses.denies:
                return _deny("program", step.uses.denies)
    return None


def unread_commands(facts: Facts) -> Decision | None:
    """Ask about a command that was not understood completely. Deny one that has too much to look at."""
    if facts.beyond:
        reason = (
            f"{facts.beyond}. Give it in several calls, or as `(cd FOLDER && ...)` if it changes folders."
        )
        return _deny("unread", reason)
    why = _unread(facts)
    if not why or is_bounded(facts):
        return None
    return Decision("policy", "ask", "unread", f"The command needs approval: {why}.")


def _unread(facts: Facts) -> str:
    """Return why not everything about the commands is understood; empty if it is."""
    return (
        facts.beyond
        or facts.unread
        or next((command.unread for command in facts.commands if command.unread), "")
    )


def _why_unproved(facts: Facts) -> str:
    """Return why the commands are not proved to read, or to write literal paths of the workspace, as a sentence."""
    if _unread(facts):
        return "It is not understood completely."
    for command in facts.commands:
        for step in command.simple:
            if why := step.uses.asks or step.uses.denies:
                return why
            if step.uses.sends:
                return f"It talks to {begin_of(step.uses.sends[0].text, 80)}."
    return facts.unproved


def is_proved(facts: Facts) -> bool:
    """Return whether the call is a command of the shell that only reads, or writes literal paths of the workspace."""
    return bool(facts.commands) and facts.is_built_in and facts.tool == SHELL and not _why_unproved(facts)


def is_bounded(facts: Facts) -> bool:
    """Return whether a sandbox without network bounds what a command of the shell may do, and the configuration lets
    such a command run without a question.
    """
    return _may_be_bounded(facts) and not _risk(facts)


def _may_be_bounded(facts: Facts) -> bool:
    has_sandbox = facts.policy.sandboxed == "allow" and facts.policy.walls.backend != "unsafe"
    return has_sandbox and bool(facts.commands) and facts.is_built_in and facts.tool == SHELL


def _risk(facts: Facts) -> str:
    """Return what a sandbox without network does not bound about commands, as a sentence; empty if it bounds all."""
    return next(filter(None, map(risk_of, facts.commands)), facts.risk)


def autonomy(facts: Facts) -> Decision | None:
    """Apply the autonomy of the run, if no other rule objects."""
    rule = f"autonomy:{facts.autonomy}"
    if facts.effect in ("read", "ask", "tell"):
        return Decision(by="policy", verdict="allow", rule=rule)
    if facts.autonomy == "full":
        is_unread = facts.effect == "exec" and bool(_unread(facts)) and is_bounded(facts)
        return Decision(by="policy", verdict="allow", rule=SANDBOXED if is_unread else rule)
    if facts.autonomy == "read-only":
        return _deny(rule, f"This run may only read, and {facts.tool} has the effect `{facts.effect}`.")
    if facts.effect == "write":
        return Decision(by="policy", verdict="allow", rule=rule)
    if facts.is_built_in and _only_asks(facts):
        return Decision(by="policy", verdict="allow", rule="egress")
    if (permission := _permission(facts)) is not None:
        return Decision(by="policy", verdict="allow", rule=f"allow:{permission.text}")
    why = ""
    if facts.commands and facts.effect == "exec":
        why = _why_unproved(facts)
        if not why and facts.is_built_in and facts.tool == SHELL:
            return Decision(by="policy", verdict="allow", rule="proved")
        if _may_be_bounded(facts):
            why = _risk(facts)
            if not why:
                return Decision(by="policy", verdict="allow", rule=SANDBOXED)
    if (
        facts.policy.sandboxed == "allow"
        and facts.policy.walls.backend == "unsafe"
        and facts.effect == "exec"
    ):
        why = f"{why} {_NO_SANDBOX}".lstrip()
    reason = f"{_NEEDS[facts.effect]} needs approval.{f' {why}' if why else ''}"
    return Decision(by="policy", verdict="ask", rule=rule, reason=reason)


def _only_asks(facts: Facts) -> bool:
    """Return whether a call only reads from where a person has listed. `egress` found its hosts and engines there."""
    if facts.tool == WEB_SEARCH:
        return True
    reads = facts.tool in _READS_THE_WEB or (facts.tool in _SENDS_REQUESTS and facts.only_asks)
    return reads and bool(facts.urls)


RULES: tuple[Rule, ...] = (
    tool_globs,
    hidden_characters,
    hard_floor,
    own_places,
    secret_paths,
    inside_workspace,
    allowed_places,
    egress,
    steering_files,
    hook_programs,
    outside_files,
    listed_rules,
    never,
    unread_commands,
    autonomy,
)


def _deny(rule: str, reason: str) -> Decision:
    return Decision(by="policy", verdict="deny", rule=rule, reason=reason)
