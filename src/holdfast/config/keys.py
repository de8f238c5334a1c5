"""The table of all keys: their values, and what a project or admin file may do with them.

To add a setting, add a row here and a field in `settings`. `load` reads and merges files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from holdfast.config import models, money, secrets, services
from holdfast.config.money import IDLE_MAX_S, TOKENS_MAX, TURNS_MAX
from holdfast.config.values import (
    Kind,
    choice,
    choices,
    duration,
    entries,
    near_choice,
    number,
    program,
    rules,
    size,
    switch,
    text,
    whole,
)
from holdfast.protocol.allowed import (
    EVERYWHERE,
    allowed_host_of,
    common_hosts,
    common_paths,
    folder_of,
    hosts_are_within,
    listed_path_of,
    paths_are_within,
)
from holdfast.protocol.hooks import ENTRY_POINT, HOOK_EVENTS, entry_point_of
from holdfast.protocol.known_rules import allow_rule_of, objecting_rule_of, tool_glob_of
from holdfast.protocol.limits import DEFAULT_MAX_OUTPUT_TOKENS
from holdfast.protocol.notify import NOTIFY_ABOUT
from holdfast.protocol.rules import common_globs, globs_are_within
from holdfast.protocol.search import common_engines, engine_of, engines_are_within
from holdfast.protocol.settings import Conduct, Context, Guard, Policy, Repairs, Walls
from holdfast.protocol.text_formats import TOOL_CALLS, UNFIT

OUTPUT_TOKENS_MAX = 1_000_000
MESSAGES_MIN, MESSAGES_MAX = 10, 100_000
UNDO_KEEP_S = 30 * 86_400.0
UNDO_MAX_S = 10 * 365 * 86_400
USD_PER_MTOK_MAX = 100_000

Project = Literal["trust", "tighten", "never"]
"""What a project file may do with a key: set it once it is trusted, only tighten it, or nothing. It may always choose
a stricter value, even without trust.
"""


class Order(NamedTuple):
    """How two lists of what is allowed compare."""

    is_within: Callable[[Any, Any], bool]
    """Whether the first one allows no more than the second one."""
    common: Callable[[Any, Any], Any]
    """What both allow."""


class Key(NamedTuple):
    """One setting. The user chooses the name in the place of a `*` in its path."""

    path: str
    kind: Kind
    about: str
    default: Any = None
    project: Project = "never"
    strictness: Callable[[Any], float] | None = None
    """Higher is stricter. A project or admin file may tighten a key that has this."""
    barred: Callable[[Any], str] | None = None
    """Why a project file may not give it such a value, trusted or not; empty if it may."""
    flag: str = ""
    adds: Literal["", "stricter", "looser"] = ""
    """Whether the values of all sources add up, and what more of them make of the whole."""
    order: Order | None = None
    """For a list of what is allowed: a project or admin file may tighten it."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it; none for keys with a chosen name in their path."""
        return "" if "*" in self.path else "HOLDFAST_" + self.path.upper().replace(".", "_")


AUTONOMY = ("full", "supervised", "read-only")
"""The levels of autonomy, from loose to strict."""
APPROVE_BY = ("prompt", "wait", "deny", "defer")
WORKSPACE_TRUST = ("trusted", "untrusted")
UNKNOWN_ARGUMENTS = ("strip", "reject")

_AUTONOMY = choice(*AUTONOMY)
_APPROVE_BY = choice(*APPROVE_BY)
_PRICE = number(0, USD_PER_MTOK_MAX)
_MODEL = text(r"[A-Za-z0-9._-]+:\S.*", 'PROVIDER:MODEL, like "anthropic:claude-sonnet-5"')

_MEMORY_BYTES = (64 << 20, 1 << 44)
_FILE_BYTES = (1 << 20, 1 << 50)
_PROCESSES = (8, 100_000)
_CPU_S = (1, 30 * 86_400)
_MODES = ("bubblewrap", "auto", "landlock", "unsafe")
"""From the strictest to the loosest. `auto` is never less than `landlock`, and may be more."""
_FOLDERS = 'folders, like ["~/.pyenv", "/srv/data"]'


def _less(value: Any) -> float:
    return -float(value)


def _is_denied(value: Any) -> float:
    return float(value == "deny")


def _fenced(value: Any) -> float:
    return -float(_MODES.index(value))


def _script(model: Any) -> str:
    is_script = model.partition(":")[0].lower() == "script"
    return "may not name a script, because its lines call any tools" if is_script else ""


_REPAIRS = {
    "unknown_tool": "names no tool",
    "invalid_json": "has arguments that are not JSON",
    "schema": "does not fit its tool",
    "timeout": "runs into its time limit",
    "policy_denied": "is denied",
    "execution": "fails",
}
"""By class, what a failed call does, for the sentence about its limit."""
KEYS: tuple[Key, ...] = (
    Key(
        "model", _MODEL, "The model of a run that does not name one.", None, "trust", None, _script, "--model"
    ),
    Key(
        "max_output_tokens",
        whole(1, OUTPUT_TOKENS_MAX),
        "The most output of one model call.",
        DEFAULT_MAX_OUTPUT_TOKENS,
        "tighten",
        _less,
    ),
    Key(
        "autonomy",
        _AUTONOMY,
        "What the agent may do without approval.",
        "supervised",
        "trust",
        AUTONOMY.index,
        flag="--autonomy",
    ),
    Key(
        "approve_by",
        _APPROVE_BY,
        "How approvals are asked. Default: prompt on a terminal, otherwise wait.",
        None,
        "tighten",
        _is_denied,
        flag="--approve-by",
    ),
    Key(
        "posture",
        text(r"[A-Za-z0-9._-]+", "the name of a posture"),
        "The bundle of settings to start with: interactive, headless, overnight or one of [postures].",
        flag="--posture",
    ),
    *(
        Key(f"limits.{name}", kind, about, default, "tighten", money.less, flag=flag)
        for name, kind, about, default, flag in money.LIMITS
    ),
    *(
        Key(f"{money.BUDGETS}.{row.name}", row.kind, row.about, None, "never", money.less, money.never)
        for row in money.SPENDING
    ),
    *(Key(f"{money.BUDGETS}.{row.name}", row.kind, row.about, row.default) for row in money.PERIODS),
    *(Key(f"{services.CIRCUITS}.{row.name}", row.kind, row.about, row.default) for row in services.OPENING),
    *(
        Key(f"{services.RETRY}.{row.name}", row.kind, row.about, row.default, "tighten", money.less)
        for row in services.TRIES
    ),
    *(
        Key(f"{services.RATES}.*.{row.name}", row.kind, row.about, None, "tighten", money.less)
        for row in services.SPEED
    ),
    Key("postures.*.autonomy", _AUTONOMY, "Like the key of that name."),
    Key("postures.*.approve_by", _APPROVE_BY, "Like the key of that name."),
    *(
        Key(f"postures.*.limits.{name}", kind, "Like the limit of that name.")
        for name, kind, *_ in money.LIMITS
    ),
    *(Key(row.path, row.kind, row.about, None, "trust", flag=row.flag) for row in models.ROWS),
    *(
        Key(f"catalog.*.{name}", kind, about, project="trust")
        for name, kind, about in (
            ("input_usd_per_mtok", _PRICE, "Dollars per million input tokens."),
            ("output_usd_per_mtok", _PRICE, "Dollars per million output tokens."),
            ("cache_read_usd_per_mtok", _PRICE, "Dollars per million tokens read from a cache."),
            ("cache_write_usd_per_mtok", _PRICE, "Dollars per million tokens written to a cache."),
            ("cache_write_1h_usd_per_mtok", _PRICE, "The same, for what stays there for an hour."),
            ("context_tokens", whole(1_000, 100_000_000), "The context window of the model."),
            ("max_output_tokens", whole(1, OUTPUT_TOKENS_MAX), "The most output of the model."),
            (
                "tool_calls",
                near_choice(*TOOL_CALLS, never=UNFIT),
                "`text` or a format, if the model has no native tool calls.",
            ),
            ("images", switch(), "Whether the model reads images. By default where that is known."),
        )
    ),
    Key(
        "sandbox.mode",
        choice(*_MODES),
        "How commands are confined: `auto` by the strictest that works, `unsafe` not at all.",
        "auto",
        "tighten",
        _fenced,
    ),
    Key("sandbox.read", entries(folder_of, _FOLDERS), "What commands may read beside the workspace.", ()),
    Key("sandbox.write", entries(folder_of, _FOLDERS), "What commands may change beside the workspace.", ()),
    Key(
        "sandbox.memory",
        size(*_MEMORY_BYTES),
        "The memory of each process of a command.",
        Walls().memory_bytes,
        "tighten",
        _less,
    ),
    Key(
        "sandbox.file_size",
        size(*_FILE_BYTES),
        "The longest file that a command may write.",
        Walls().file_bytes,
        "tighten",
        _less,
    ),
    Key(
        "sandbox.processes",
        whole(*_PROCESSES),
        "How many processes a command may have at a time.",
        Walls().processes,
        "tighten",
        _less,
    ),
    Key("sandbox.cpu", duration(*_CPU_S), "Of each process of a command.", Walls().cpu_s, "tighten", _less),
    Key("policy.deny", rules(objecting_rule_of), "Calls that are denied.", (), "tighten", adds="stricter"),
    Key("policy.ask", rules(objecting_rule_of), "Calls that need approval.", (), "tighten", adds="stricter"),
    Key(
        "policy.allow",
        rules(allow_rule_of),
        "Calls that need no approval. Other rules still count.",
        (),
        "trust",
        adds="looser",
    ),
    Key(
        "policy.allowed_paths",
        entries(listed_path_of, 'paths of the workspace, like ["src", "docs:ro"]'),
        "What tools may use in the workspace; with :ro, only to read.",
        (EVERYWHERE,),
        "trust",
        order=Order(paths_are_within, common_paths),
    ),
    Key(
        "policy.sandboxed",
        choice("ask", "allow"),
        "`allow`: unknown programs run without a question in a sandbox without network. Not with `unsafe`.",
        Policy().sandboxed,
        "trust",
        ("allow", "ask").index,
    ),
    Key(
        "policy.actions_per_hour",
        whole(1, 1_000_000),
        "How many calls a session may start within an hour before the next ones need approval.",
        600,
        "tighten",
        _less,
    ),
    Key(
        "policy.grants_last",
        duration(60, 7 * 86_400),
        "How long a grant of `approve --always` lasts.",
        Policy().grants_last_s,
        "tighten",
        _less,
    ),
    Key(
        "network.allow",
        entries(allowed_host_of, 'hosts, like ["api.github.com", "*.example.net", "127.0.0.1:8080"]'),
        "The hosts that tools may reach.",
        (),
        "trust",
        order=Order(hosts_are_within, common_hosts),
    ),
    Key(
        "secrets.*.hosts",
        secrets.HOSTS,
        "The hosts that the secret may be sent to.",
        project="tighten",
        order=Order(secrets.are_within, common_hosts),
    ),
    *(Key(f"secrets.*.{name}", kind, about) for name, kind, about in secrets.OTHERS),
    Key(
        "tools.allow",
        entries(tool_glob_of, 'globs on the names of tools, like ["*_file", "shell"]'),
        "The tools that runs may have.",
        ("*",),
        "tighten",
        order=Order(globs_are_within, common_globs),
    ),
    Key(
        "tools.deny",
        rules(tool_glob_of),
        "The tools that no run has.",
        (),
        "tighten",
        adds="stricter",
    ),
    Key(
        "tools.unknown_arguments",
        choice(*UNKNOWN_ARGUMENTS),
        "Whether a call with arguments that its tool does not take is refused, or runs without them.",
        UNKNOWN_ARGUMENTS[1],
        "tighten",
        UNKNOWN_ARGUMENTS.index,
    ),
    Key(
        "tools.packages",
        entries(entry_point_of, 'names of entry points of the group holdfast.tools, like ["tickets"]'),
        "The tools that installed packages add.",
        (),
        "trust",
    ),
    Key(
        "search.engines",
        entries(
            engine_of, 'search engines, like ["exa", "duckduckgo", "searxng=https://search.example.net"]'
        ),
        "The search engines that web_search asks, in order.",
        (),
        "trust",
        order=Order(engines_are_within, common_engines),
    ),
    Key(
        "taint.workspace",
        choice(*WORKSPACE_TRUST),
        "Whether strangers wrote files of the workspace: what the model reads there is then untrusted.",
        WORKSPACE_TRUST[0],
        "tighten",
        WORKSPACE_TRUST.index,
    ),
    Key(
        "repeat.note",
        whole(2, 100),
        "How often a call may repeat with the same result before Holdfast tells the model.",
        3,
        "tighten",
        _less,
    ),
    Key("repeat.stop", whole(3, 1_000), "How often, before the run ends as stuck.", 8, "tighten", _less),
    *(
        Key(
            f"repair.{name}",
            whole(1, 1_000),
            f"How many responses in a row, each with a call that {words}, end the run as failed.",
            getattr(Repairs(), name),
            "tighten",
            _less,
        )
        for name, words in _REPAIRS.items()
    ),
    Key(
        "guard.stall_turns",
        whole(3, TURNS_MAX),
        "How many turns in a row may bring nothing new before the run ends as stuck.",
        Guard().stall_turns,
        "tighten",
        _less,
    ),
    Key(
        "guard.wait_s",
        number(1, IDLE_MAX_S),
        "A call that takes so many seconds is waiting. It is neither a repeat nor a lack of progress.",
        Guard().wait_s,
        "tighten",
        float,
    ),
    Key(
        "context.max_messages",
        whole(MESSAGES_MIN, MESSAGES_MAX),
        "The most messages of one request.",
        Context().max_messages,
        "tighten",
        _less,
    ),
    Key(
        "context.max_tokens",
        whole(1_000, TOKENS_MAX),
        "The most input tokens of one request. By default the model's window and the money decide.",
        Context().max_tokens,
        "tighten",
        _less,
    ),
    Key(
        "prompt.zone",
        text(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", 'a time zone, like "Europe/Berlin"'),
        "The time zone in which the model reads when you wrote. Default: this machine's.",
        project="trust",
    ),
    Key(
        "plan.max_replans",
        whole(1, 100),
        "How often the plan may be revised without a step done.",
        Conduct().max_replans,
        "tighten",
        _less,
    ),
    Key(
        "reflection.after_failures",
        whole(1, 100),
        "How many failed calls in a row are a failure of the plan's step, and a reason to reflect.",
        Conduct().after_failures,
        "tighten",
        _less,
    ),
    Key(
        "answers.calibrated",
        switch(),
        "Whether the answer comes with a confidence, reasons and caveats.",
        Conduct().is_calibrated,
        "tighten",
        float,
        flag="--calibrated",
    ),
    Key(
        "answers.threshold",
        number(0, 1),
        "The confidence below which the model has to look again.",
        Conduct().answer_threshold,
        "tighten",
        float,
    ),
    Key(
        "reflection.every_turns",
        whole(1, TURNS_MAX),
        "After how many turns the model is asked how the task is going.",
        Conduct().reflect_turns,
        "tighten",
        _less,
    ),
    Key(
        "reflection.max",
        whole(0, 100),
        "How often at most in one run. 0: never.",
        Conduct().max_reflections,
        "tighten",
        _less,
    ),
    Key(
        "reflection.model",
        _MODEL,
        "The model that is asked. Default: the run's.",
        None,
        "trust",
        None,
        _script,
    ),
    Key(
        "compaction.at",
        number(0.1, 0.95),
        "The share of the model's window at which a summary is asked for.",
        Context().compact_at,
        "trust",
    ),
    Key(
        "compaction.to",
        number(0.05, 0.9),
        "The share of the window that a request fills after a compaction.",
        Context().compact_to,
        "trust",
    ),
    Key(
        "compaction.turns",
        whole(1, TURNS_MAX),
        "After how many turns a summary is asked for in any case.",
        Context().compact_turns,
        "trust",
    ),
    Key(
        "compaction.model",
        _MODEL,
        "The model that writes summaries. Default: the run's.",
        None,
        "trust",
        None,
        _script,
    ),
    Key(
        "compaction.max_per_hour",
        whole(0, 60),
        "How many attempts to get a summary there may be in an hour. 0: none.",
        Context().compactions_per_hour,
        "tighten",
        _less,
    ),
    Key(
        "compaction.max_cost_share",
        number(0, 0.5),
        "The share of the cost limit that summaries may take.",
        Context().compact_cost_share,
        "tighten",
        _less,
    ),
    Key(
        "notify.on",
        choices(*NOTIFY_ABOUT),
        "What you are notified of.",
        NOTIFY_ABOUT,
        "trust",
    ),
    Key("notify.command", program(), "The program that notifies you, and its arguments.", None, "trust"),
    Key(
        "hooks.*.on",
        choices(*HOOK_EVENTS),
        "The events that the hook is asked about or told.",
        project="trust",
    ),
    Key(
        "hooks.*.tools",
        entries(tool_glob_of, 'names of tools, like ["shell", "mcp__*"]', fewest=1),
        "The tools whose calls it sees. Default: all.",
        project="trust",
    ),
    Key("hooks.*.command", program(), "The program and its arguments.", project="trust"),
    Key(
        "hooks.*.python",
        text(ENTRY_POINT, "the name of an entry point of the group holdfast.hooks"),
        "The function of an installed package, instead of a command.",
        project="trust",
    ),
    Key("hooks.*.timeout_s", number(0.1, 600), "How long it may take. Default: 5 seconds.", project="trust"),
    Key(
        "hooks.*.on_failure",
        choice("deny", "allow"),
        "What counts if it is late, fails or gives no valid answer. Default: deny.",
        project="trust",
    ),
    Key(
        "undo.keep",
        duration(60, UNDO_MAX_S),
        "How long the content of files from before an edit is kept for `holdfast undo`.",
        UNDO_KEEP_S,
    ),
)

REFUSED: dict[str, str] = {
    "providers.*.api_key": "a key does not belong in a file; put it into an environment variable and name"
    ' the variable: api_key_env = "OPENAI_API_KEY"; or store it with'
    ' `holdfast secret set NAME`, and name it: api_key_secret = "NAME"',
    "secrets.*.value": "a secret does not belong in a file; store it with `holdfast secret set NAME`",
    "allowed_paths": 'it belongs to the section [policy]: allowed_paths = ["src", "docs:ro"]',
}
"""Keys that people expect, and why they do not exist."""
