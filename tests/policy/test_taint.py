"""Which calls could send something out, and which of them ask once a session has read what it should not send."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.policy.taint import objection
from holdfast.protocol.tools import Decision, Effect, ParameterKind, ToolSpec
from holdfast.protocol.trust import CLEAN, Mark, Taint

READ_WEB, READ_FILE = Mark(12, "web_fetch"), Mark(8, "read_file")
WEB = Taint(untrusted=READ_WEB)
FILES = Taint(private=READ_FILE)
BOTH = Taint(READ_WEB, READ_FILE)
ALLOWED = Decision("policy", "allow", "allow:shell(curl *)")
FULL = Decision("policy", "allow", "autonomy:full")
URL = "https://a.example/x"


def spec(name: str, effect: str, source: str = "builtin", **kinds: Any) -> ToolSpec:
    return ToolSpec(name, "", {}, effect=effect, source=source, kinds=kinds)  # type: ignore[arg-type]


FETCH = spec("web_fetch", "network", url="url")
REQUEST = spec("http_request", "network", url="url")
SEARCH = spec("web_search", "network")
SHELL = spec("shell", "exec", command="command")
POST = spec("post", "network", "function")
FOREIGN = spec("mcp__x__y", "exec", "foreign")
DOWNLOAD = spec("download", "read", "function", url="url")
Call = tuple[ToolSpec, dict[str, Any]]

QUERIES: list[Call] = [
    (FETCH, {"url": URL}),
    (SEARCH, {"query": "words", "limit": 5}),
    (REQUEST, {"url": URL, "method": "GET"}),
    (REQUEST, {"url": URL, "method": "head", "body": ""}),
    (DOWNLOAD, {"url": URL, "limit": 3, "deep": True}),
]
BODIES: list[Call] = [
    (REQUEST, {"url": URL, "method": "POST"}),
    (REQUEST, {"url": URL, "method": "DELETE", "body": ""}),
    (REQUEST, {"url": URL, "method": "OPTIONS"}),
    (REQUEST, {"url": URL, "method": "GET", "body": "secret"}),
    (POST, {"text": "secret"}),
    (spec("web_fetch", "network", "function", url="url"), {"url": URL, "more": "secret"}),
    (spec("web_search", "network", "foreign"), {"query": "words"}),
    (DOWNLOAD, {"url": URL, "names": [1, ["secret"]]}),
    (spec("mirror", "write", "function", url="url"), {"url": URL}),
]
COMMANDS: list[Call] = [
    (SHELL, {"command": "make"}),
    (FOREIGN, {}),
    (spec("run", "exec", "function"), {}),
    (spec("run", "exec", "function", command="command"), {"command": "ls"}),
]
LOCAL: list[Call] = [
    (spec("read_file", "read", path="path"), {"path": "a"}),
    (spec("write_file", "write", path="path"), {"path": "a", "content": "secret"}),
    (spec("ask_user", "ask"), {"question": "?"}),
    (spec("answer", "tell"), {"text": "secret"}),
    (spec("process_stop", "exec"), {"id": "p1"}),
]


def asked(
    call: Call, taint: Taint, *decisions: Decision, covered: tuple[str, ...] = (), is_proved: bool = False
) -> Decision | None:
    tool, values = call
    urls = [value for name, value in values.items() if tool.kinds.get(name) == "url"]
    return objection(tool, values, urls, decisions or (FULL,), taint, covered, is_proved=is_proved)


def names(calls: list[Call]) -> list[str]:
    return [f"{tool.source}-{tool.name}-{number}" for number, (tool, _) in enumerate(calls)]


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("call", [*QUERIES, *BODIES, *COMMANDS], ids=names([*QUERIES, *BODIES, *COMMANDS]))
def test_with_both_flags_all_that_could_send_asks_whatever_allowed_it(call: Call) -> None:
    for allowing in (FULL, ALLOWED):
        decision = asked(call, BOTH, allowing)
        assert decision is not None
        assert (decision.by, decision.verdict) == ("taint", "ask")
        assert decision.rule.startswith("taint:")
        assert "untrusted text (web_fetch, record 12)" in decision.reason
        assert "private data (read_file, record 8)" in decision.reason


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("call", [*BODIES, *COMMANDS], ids=names([*BODIES, *COMMANDS]))
def test_with_untrusted_text_alone_bodies_and_commands_ask(call: Call) -> None:
    decision = asked(call, WEB)
    assert decision is not None
    assert "untrusted text (web_fetch, record 12)." in decision.reason
    assert "private" not in decision.reason
    assert decision.covers == ""


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("call", QUERIES, ids=names(QUERIES))
def test_reading_the_web_stays_quiet_until_something_private_is_read(call: Call) -> None:
    assert asked(call, WEB) is None
    assert asked(call, BOTH) is not None


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("call", [*QUERIES, *BODIES, *COMMANDS, *LOCAL])
def test_without_untrusted_text_nothing_asks(call: Call) -> None:
    assert asked(call, CLEAN) is None
    assert asked(call, FILES) is None


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("call", LOCAL, ids=names(LOCAL))
def test_local_work_does_not_ask(call: Call) -> None:
    assert asked(call, BOTH) is None


@pytest.mark.requirement("H4")
def test_a_command_that_is_proved_local_does_not_ask_and_only_holdfasts_own_shell_can_have_such_a_proof() -> (
    None
):
    shell, run = COMMANDS[0], COMMANDS[-1]
    assert asked(shell, BOTH, is_proved=True) is None
    assert asked(run, BOTH, is_proved=True) is not None


@pytest.mark.requirement("H4", "H5")
@pytest.mark.parametrize(
    ("call", "covers"),
    [
        ((FETCH, {"url": "https://A.example/x?q=1"}), "host:a.example"),
        ((FETCH, {"url": "http://a.example/"}), "host:a.example"),
        ((FETCH, {"url": "https://a.example:8443/"}), "host:a.example:8443"),
        ((SEARCH, {"query": "words"}), "search"),
    ],
)
def test_a_yes_to_a_read_covers_its_host_for_the_run_and_says_so(call: Call, covers: str) -> None:
    decision = asked(call, BOTH)
    assert decision is not None
    assert decision.covers == covers
    assert "A yes also covers" in decision.reason
    assert covers.removeprefix("host:").split(":")[0] in decision.reason
    assert asked(call, BOTH, covered=(covers,)) is None
    assert asked(call, BOTH, covered=("host:b.example", "host:example")) is not None


@pytest.mark.requirement("H4", "H5")
@pytest.mark.parametrize("call", [*BODIES, *COMMANDS], ids=names([*BODIES, *COMMANDS]))
def test_a_yes_to_anything_else_covers_one_call(call: Call) -> None:
    decision = asked(call, BOTH, covered=("host:a.example", "search"))
    assert decision is not None
    assert (decision.covers, "also covers" in decision.reason) == ("", False)


def test_a_yes_covers_no_host_if_the_call_names_several_or_another_gate_asks_too() -> None:
    both = objection(
        DOWNLOAD, {"url": [URL, "https://b.example/"]}, [URL, "https://b.example/"], (), BOTH, ()
    )
    assert both is not None
    assert both.covers == ""
    decision = asked((FETCH, {"url": URL}), BOTH, Decision("policy", "ask", "ask:web_fetch"))
    assert decision is not None
    assert (decision.covers, "also covers" in decision.reason) == ("", False)


SPECS = st.builds(
    ToolSpec,
    name=st.sampled_from(["web_fetch", "web_search", "http_request", "shell", "other"]),
    description=st.just(""),
    parameters=st.just({}),
    effect=st.sampled_from(get_args(Effect)),
    source=st.sampled_from(["builtin", "function", "foreign"]),
    kinds=st.dictionaries(st.sampled_from("ab"), st.sampled_from(get_args(ParameterKind))),
)
VALUES = st.dictionaries(
    st.sampled_from(["a", "b", "method", "body"]),
    st.sampled_from(["GET", "post", URL, "", 3, None, ["x"], {"x": 1}]),
)


@pytest.mark.requirement("H4")
@settings(max_examples=60)
@given(SPECS, VALUES, st.lists(st.sampled_from([FULL, ALLOWED, Decision("policy", "ask", "x")]), max_size=2))
def test_what_asks_with_one_flag_asks_with_both_and_no_flag_makes_a_call_pass(
    tool: ToolSpec, values: dict[str, Any], decisions: list[Decision]
) -> None:
    urls = [
        value for name, value in values.items() if tool.kinds.get(name) == "url" and isinstance(value, str)
    ]
    clean, files, web, both = (
        objection(tool, values, urls, decisions, taint, ()) for taint in (CLEAN, FILES, WEB, BOTH)
    )
    assert (clean, files) == (None, None)
    assert web is None or both is not None
    assert both is None or (both.verdict, both.by) == ("ask", "taint")
    is_open = tool.effect == "network" or (tool.effect == "exec" and tool.source != "builtin")
    assert both is not None or not is_open
