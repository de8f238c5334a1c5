"""`[policy] sandboxed = "allow"`: what runs without a question in a sandbox without network, and what still asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.policy.commands import parsed
from holdfast.policy.reaching import hosts_of
from holdfast.policy.rules import SANDBOXED, Facts, judge, strictest
from holdfast.protocol.fence import Backend
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import Autonomy, Policy, Unproved, Walls, settings_with
from holdfast.protocol.tools import APPROVAL, Decision, ToolSpec
from holdfast.protocol.trust import CLEAN
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces

SHELL = ToolSpec("shell", "", {}, effect="exec", source="builtin", kinds={"command": "command"})
HOSTS = ("a.example",)


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    workspace = tmp_path / "ws"
    for folder in ("src", ".git/hooks", ".venv/bin"):
        (workspace / folder).mkdir(parents=True)
    for name in ("a.txt", "b.txt", "gen.py", "run.sh", "src/app.py", ".env", ".git/config"):
        (workspace / name).write_text("text\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return workspace


def facts(
    ws: Path,
    text: str,
    autonomy: Autonomy = "supervised",
    backend: Backend = "bubblewrap",
    sandboxed: Unproved = "allow",
    allow: tuple[str, ...] = (),
) -> Facts:
    policy = Policy(
        allowed_hosts=HOSTS,
        sandboxed=sandboxed,
        walls=Walls(backend),
        allow=tuple(map(PolicyRule, allow)),
    )
    made = settings_with(ModelFacts("x", "x"), str(ws), policy=policy, autonomy=autonomy)
    return facts_of(SHELL, {"command": text}, made, OwnPlaces())


def verdict(found: Facts) -> Decision:
    return strictest(judge(found))


UNKNOWN = [
    "make",
    "pytest -q tests",
    "python3 gen.py",
    "python3 -c 'print(1)'",
    "python3 - <<E\nprint(1)\nE",
    "./run.sh --fast",
    ".venv/bin/pytest -x",
    "bash run.sh",
    "source run.sh && make",
    "npm test",
    "pip install x",
    "uv run pytest",
    "PYTHONPATH=src python3 -m unittest",
    "make test 2>&1 | tail -20",
    "make > log.txt",
    "terraform plan",
    "awk '{ system($1) }' a.txt",
    "cat $FILE",
    "[ \"$X\" = y ] && make",
    "x=$((1 + 2)); echo $x; make",
    "i=0; let i++; make",
    "for ((i = 0; i < 3; i++)); do make; done",
    "declare -A m; m[a]=1; make",
    "make; case",
    "make > /dev/null; case",
    "case $X in a) make;; *) pytest;; esac",
    "gcc -o prog a.c",
    "cd src && python3 app.py",
    "for f in src/*.py; do python3 $f; done",
]  # fmt: skip
RISKY = [
    "rm -r src",
    "rm *.txt",
    "make && rm -rf src",
    "python3 gen.py; rm -r src",
    "find . -name '*.py' -delete",
    "find . -name '*.py' | xargs rm",
    "echo x > a.txt",
    "python3 gen.py > a.txt",
    "gcc -o a.txt b.c",
    "sed -i s/a/b/ a.txt",
    "awk '{ print > \"a.txt\" }' b.txt",
    "mv a.txt old.txt",
    "cp a.txt b.txt",
    "chmod +x run.sh",
    "tar cf x.tar src",
    "kill 1",
    "patch -p1 < a.txt",
    "git checkout -- a.txt",
    "git reset --hard",
    "git push",
    "curl https://a.example/",
    "curl $URL",
    "$(echo rm) -r src",
    "eval \"$X\"",
    "rm $X",
    "echo x > $X",
    "sort $X a.txt",
    "alias ls=rm; ls a.txt",
    "case $X in a) rm -rf src;; esac",
    "case $X in a) echo x > a.txt;; esac",
    "case $X in a) git clean -fdx;; esac",
    "case $X in a) /bin/rm -rf src;; esac",
    "sed -i s/a/b/ a.txt; case",
    "find . -delete; case",
    "echo x >> a.txt; case",
    "chmod +x run.sh; case",
    "git push; case",
    "curl https://a.example/; case",
    "coproc rm a.txt",
    "make 'rm -rf src",
    "case $X in a) curl a.example;; esac",
    "if true; then rm -rf src; fi; case",
    "cat ../outside.txt; case",
]  # fmt: skip
DENIED = [
    "cat .env",
    "python3 gen.py < .env",
    "sudo make",
    "case $X in a) sudo ls;; esac",
    "echo x > .git/hooks/pre-commit; case",
    "ssh a.example ls",
    "make; cat ../outside.txt",
    "curl https://b.example/",
    "python3 gen.py; echo x > .git/config",
    "make\u200b",
]


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_unknown_runs_without_a_question_in_a_sandbox_and_never_gets_a_network(
    ws: Path, text: str
) -> None:
    found = facts(ws, text)
    decision = verdict(found)
    if decision.rule == "proved":
        pytest.fail("It is proved, so this shows nothing.")
    assert (decision.verdict, decision.rule) == ("allow", SANDBOXED), decision.reason
    assert hosts_of(found, judge(found), CLEAN) == ()
    assert hosts_of(found, (*judge(found), Decision(APPROVAL, "allow")), CLEAN) == ()
    for autonomy in ("read-only", "supervised"):
        assert verdict(facts(ws, text, autonomy, sandboxed="ask")).verdict != "allow"
        assert verdict(facts(ws, text, autonomy, backend="unsafe")).verdict != "allow"
    assert verdict(facts(ws, text, "read-only")).verdict == "deny"


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("text", RISKY)
def test_what_the_text_says_would_be_lost_changed_or_sent_still_asks(ws: Path, text: str) -> None:
    found, plain = verdict(facts(ws, text)), verdict(facts(ws, text, sandboxed="ask"))
    assert (found.verdict, found.rule) == ("ask", plain.rule)
    assert found.reason.endswith(".")


def test_the_question_says_what_would_be_lost_and_not_what_the_sandbox_bounds(ws: Path) -> None:
    assert (
        "a.txt exists already, and its content would be lost"
        in verdict(facts(ws, "python3 gen.py > a.txt")).reason
    )
    assert "`rm` deletes folders" in verdict(facts(ws, "make && rm -r src")).reason


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("text", DENIED)
def test_what_is_denied_stays_denied_in_a_sandbox(ws: Path, text: str) -> None:
    assert verdict(facts(ws, text)).verdict == "deny"


@pytest.mark.requirement("C12", "L2")
def test_under_full_a_text_that_is_not_understood_runs_without_network_and_others_as_before(ws: Path) -> None:
    unread = facts(ws, "make; case", "full")
    assert (verdict(unread).verdict, verdict(unread).rule) == ("allow", SANDBOXED)
    assert hosts_of(unread, judge(unread), CLEAN) == ()
    known = facts(ws, "make", "full")
    assert verdict(known).rule == "autonomy:full"
    assert hosts_of(known, judge(known), CLEAN) == HOSTS
    for changed in ({"backend": "unsafe"}, {"sandboxed": "ask"}):
        assert verdict(facts(ws, "make; case", "full", **changed)).rule == "unread"


@pytest.mark.requirement("C12", "L2")
def test_a_rule_that_allows_a_program_gives_it_the_network_that_the_sandbox_alone_does_not(ws: Path) -> None:
    found = facts(ws, "pip install x", allow=("shell(pip install *)",))
    assert verdict(found).rule == "allow:shell(pip install *)"
    assert hosts_of(found, judge(found), CLEAN) == HOSTS


@pytest.mark.requirement("C12")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.sampled_from([*UNKNOWN, *RISKY, *DENIED]),
    more=st.sampled_from([*UNKNOWN, "ls", "case", "'", "$((", "cd sub", "f() { ls; }", "exit", "wait"]),
    joint=st.sampled_from(["; ", "\n", " && ", " | ", " & "]),
)
@example(text="rm -r src", more="case", joint="\n")
@example(text="make; cat ../outside.txt", more="make; case", joint="; ")
@example(text="find . -name '*.py' -delete", more="$((", joint="; ")
@example(text="sort -o a.txt b.txt", more="case", joint="\n")
def test_what_does_not_run_in_a_sandbox_does_not_run_when_something_is_appended_either(
    ws: Path, text: str, more: str, joint: str
) -> None:
    if parsed(text).unread:  # what is appended may complete it: it was no command yet
        return
    before, after = verdict(facts(ws, text)), verdict(facts(ws, f"{text}{joint}{more}"))
    assert before.verdict == "allow" or after.verdict != "allow", (text, joint, more)
