"""Hooks before a call, with real programs behind the real gates."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

from holdfast.errors import Lapsed, UsageError
from holdfast.extensions import hook_commands
from holdfast.policy.protected import Own
from holdfast.protocol.hooks import CHANGED, HookSource
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.messages import ToolCall
from holdfast.protocol.ports import Check, Proposal
from holdfast.protocol.rules import PolicyRule
from holdfast.protocol.settings import Policy, changed, settings_with
from holdfast.protocol.tools import Admission, Allowed, Asked, Decision, Refused
from holdfast.sandbox.trees import members
from holdfast.testing.clock import never_over
from holdfast.tools.builtin import make_tools
from tests.extensions.asked import SECRET, asked, hook, noting, rewriting, saying

SESSION = f"hooks{os.getpid()}"


class Bench:
    """A workspace whose calls hooks are asked about."""

    def __init__(self, workspace: Path, *sources: HookSource) -> None:
        self.hooks = asked(*sources)
        self.tools = make_tools(secret_in=lambda text: "", own=Own(), hooks=self.hooks)
        settings = settings_with(ModelFacts("script", "x"), str(workspace), autonomy="full")
        self.settings = changed(settings, policy=Policy(hooks=tuple(each.hook for each in sources)))

    async def admit(self, tool: str, check: Check | None = never_over, /, **arguments: object) -> Admission:
        call = ToolCall(ref="r", name=tool, arguments=json.dumps(arguments), call_id="t1.c1")
        return await self.tools.admit(Proposal(call, SESSION, self.settings, check=check))

    async def shell(self, command: str) -> Admission:
        return await self.admit("shell", command=command)


@pytest.fixture
async def benched(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*sources: HookSource) -> Bench:
        made.append(Bench(tmp_path, *sources))
        return made[-1]

    yield make
    for bench in made:
        await bench.tools.aclose()
        await bench.hooks.aclose()


Benched = Callable[..., Bench]


def by_hooks(admission: Admission) -> list[tuple[str, str, str]]:
    return [(each.verdict, each.rule, each.reason) for each in admission.decisions if each.by == "hook"]


@pytest.mark.requirement("S4")
async def test_a_hook_reads_the_call_that_will_run_in_the_workspace(benched: Benched, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    admission = await benched(noting("look", seen)).shell("ls   -l")
    assert isinstance(admission, Allowed)
    (line,) = seen.read_text().splitlines()
    assert json.loads(line) == {
        "event": "before_tool", "hook": "look", "session": SESSION, "workspace": str(tmp_path),
        "call": "t1.c1", "tool": "shell", "effect": "exec", "arguments": {"command": "ls   -l"},
    }  # fmt: skip
    assert by_hooks(admission) == [("allow", "hook:look", "")]


@pytest.mark.requirement("S4")
async def test_the_first_denial_wins_and_no_later_hook_is_asked(benched: Benched, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    first = saying("first", {"verdict": "ask", "reason": "hm"})
    denied = saying("second", {"verdict": "deny", "reason": "not today"})
    bench = benched(first, denied, noting("third", seen))
    refused = await bench.shell("ls")
    assert isinstance(refused, Refused)
    assert refused.failure.message == "Refused by the hook second: not today"
    assert refused.failure.code == "policy_denied"
    assert by_hooks(refused) == [("ask", "hook:first", "hm"), ("deny", "hook:second", "not today")]
    assert not seen.exists()


@pytest.mark.requirement("S4", "L9")
async def test_policy_comes_first_and_a_hook_that_allows_changes_nothing(
    benched: Benched, tmp_path: Path
) -> None:
    """A denial must not become a question, nor a question a permission."""
    seen = tmp_path / "seen"
    for answer in ('{"verdict":"allow"}', '{"verdict":"ask"}', '{"arguments":{"command":"ls"}}'):
        bench = benched(noting("kind", seen, answer))
        bench.settings = changed(
            bench.settings, deny=(PolicyRule("shell(terraform *)"),), ask=(PolicyRule("shell(make *)"),)
        )
        refused = await bench.shell("terraform apply")
        assert isinstance(refused, Refused)
        assert by_hooks(refused) == []
        assert not seen.exists()
        assert isinstance(await bench.shell("make all"), Asked)
        seen.unlink()


@pytest.mark.requirement("S4")
async def test_other_arguments_run_and_pass_schema_and_policy_again(benched: Benched, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    bench = benched(rewriting("sober", "beer", "water"), noting("after", seen))
    admission = await bench.shell("echo beer")
    assert isinstance(admission, Allowed)
    assert json.loads(admission.arguments) == {"command": "echo water"}
    assert by_hooks(admission)[0] == ("allow", "hook:sober", CHANGED)
    assert [json.loads(line)["arguments"]["command"] for line in seen.read_text().splitlines()] == [
        "echo water"
    ]
    for answer, told in (
        ({"command": "cat ~/.ssh/id_rsa"}, "Refused by policy"),
        ({"command": 5}, "command"),
        ({"comand": "ls"}, "comand"),
    ):
        refused = await benched(saying("wild", {"arguments": answer})).shell("ls")
        assert isinstance(refused, Refused)
        assert "The hook wild changed the arguments of this call" in refused.failure.message
        assert told in refused.failure.message


@pytest.mark.requirement("S4")
async def test_a_question_about_the_first_arguments_is_still_asked_about_the_changed_ones(
    benched: Benched,
) -> None:
    bench = benched(rewriting("hider", "make", "true"))
    bench.settings = changed(bench.settings, ask=(PolicyRule("shell(make *)"),))
    question = await bench.shell("make all")
    assert isinstance(question, Asked)
    assert json.loads(question.arguments) == {"command": "true all"}


@pytest.mark.requirement("S4")
async def test_an_earlier_hook_sees_what_a_later_one_makes_of_the_call(benched: Benched) -> None:
    guard = hook("guard", """grep -q '"command":"rm' && echo '{"verdict":"deny"}' || echo '{}'""")
    refused = await benched(guard, rewriting("changer", "ls", "rm")).shell("ls x")
    assert isinstance(refused, Refused)
    assert refused.failure.message == "Refused by the hook guard."


@pytest.mark.requirement("S4")
async def test_hooks_that_keep_changing_each_others_arguments_end_in_a_refusal(
    benched: Benched, tmp_path: Path
) -> None:
    up = rewriting("up", "low", "high")
    counting = f"echo >> {tmp_path}/times; {up.command[2]}"
    bench = benched(hook("up", counting), rewriting("down", "high", "low"))
    refused = await bench.shell("echo low")
    assert isinstance(refused, Refused)
    assert "kept changing" in refused.failure.message
    assert len((tmp_path / "times").read_text()) == 3
    assert len(refused.decisions) < 20


@pytest.mark.requirement("S4")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '{}'; exit 3", "its exit code was 3"),
        ("echo broken >&2; exit 1", "its exit code was 1: broken"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("echo no json", "its answer is not valid JSON"),
        ("true", "it gave no answer"),
        ("echo '[]'", "its answer is not a JSON object"),
        (
            """echo '{"verdict":"denied"}'""",
            "its answer has the unknown verdict 'denied'; did it mean 'deny'",
        ),
        ("""echo '{"verdict":["deny"]}'""", "its answer has the unknown verdict"),
        ("""echo '{"decision":"deny"}'""", "its answer has the unknown key 'decision'"),
        ("""echo '{"arguments":"ls"}'""", "the arguments of its answer are not an object"),
        (
            """echo '{"verdict":"deny","verdict":"allow"}'""",
            "its answer is not valid JSON: an object names 'verdict' twice",
        ),
        (
            """echo '{"arguments":{"command":"ls","command":"id"}}'""",
            "its answer is not valid JSON: an object names 'command' twice",
        ),
        ("""echo '{"reason":7}'""", "the reason of its answer is not a text"),
        ("head -c 70000 /dev/zero | tr '\\0' ' '; echo '{}'", "it wrote more than 64 KiB"),
        ("head -c 200000 /dev/zero >&2; exit 1", "its exit code was 1"),
        ("printf '%0200d' 0 | tr 0 '['", "its answer is not valid JSON"),
    ],
)
async def test_a_hook_that_fails_denies_the_call_unless_its_failures_are_allowed(
    benched: Benched, script: str, why: str
) -> None:
    refused = await benched(hook("odd", script)).shell("ls")
    assert isinstance(refused, Refused)
    assert f"Refused by the hook odd: the hook failed: {why}" in refused.failure.message
    allowed = await benched(hook("odd", script, on_failure="allow")).shell("ls")
    assert isinstance(allowed, Allowed)
    ((verdict, _, reason),) = by_hooks(allowed)
    assert verdict == "allow"
    assert f"The hook failed: {why}" in reason


@pytest.mark.requirement("S2")
async def test_what_a_failed_hook_wrote_is_masked_before_it_is_cut(benched: Benched) -> None:
    for after in range(280, 300, 5):
        refused = await benched(hook("odd", f"printf '{SECRET}%0{after}d' 0 >&2; exit 1")).shell("ls")
        assert isinstance(refused, Refused)
        assert SECRET[-4:] not in refused.failure.message
        assert "0" * 250 in refused.failure.message


@pytest.mark.requirement("S4", "A14")
async def test_a_reason_does_not_tell_whether_it_ends_in_a_secret(benched: Benched) -> None:
    for end in (SECRET[:12], "x" * 12):
        bench = benched(hook("no", f"""echo '{{"verdict":"deny","reason":"because {end}"}}'"""))
        refused = await bench.shell("ls")
        assert isinstance(refused, Refused)
        assert refused.failure.message.endswith(f"because {end}")


@pytest.mark.requirement("S4", "C4")
async def test_a_late_hook_is_killed_with_all_its_processes(benched: Benched, tmp_path: Path) -> None:
    script = f"setsid sleep 300 & sleep 300 & echo $! > {tmp_path}/pid; sleep 300"
    bench = benched(hook("slow", script, timeout_s=0.3))
    refused = await bench.shell("ls")
    assert isinstance(refused, Refused)
    assert "it did not answer within 0.3 s" in refused.failure.message
    assert not members([f"{SESSION}:t1.c1"])


@pytest.mark.requirement("S4", "C4")
async def test_a_hook_that_hangs_ends_with_what_asked_for_it(benched: Benched, tmp_path: Path) -> None:
    bench = benched(hook("slow", f"echo on > {tmp_path}/on; sleep 300", timeout_s=300.0))
    asking = asyncio.create_task(bench.shell("ls"))
    while not (tmp_path / "on").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not members([f"{SESSION}:t1.c1"])


@pytest.mark.requirement("S4", "A4")
async def test_a_hook_sees_no_secret_of_the_environment_and_tells_none(
    benched: Benched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HOLDFAST_HOME", "LD_PRELOAD", "USER", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")
    bench = benched(hook("env", f"env | cut -d= -f1 | sort > {tmp_path}/env; echo '{{}}'"))
    await bench.shell("ls")
    allowed = {
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TERM",
        "HOLDFAST_EVENT",
        "HOLDFAST_CALL",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert set((tmp_path / "env").read_text().split()) <= allowed
    told = saying("teller", {"verdict": "deny", "reason": f"{SECRET} \x1b[31m" + "x" * 5_000})
    refused = await benched(told).shell("ls")
    ((_, _, reason),) = by_hooks(refused)
    assert SECRET not in reason
    assert "\x1b" not in reason
    assert len(reason) <= 2_000


@pytest.mark.requirement("S4")
async def test_a_hook_sees_only_the_tools_it_is_for_and_nothing_that_only_tells(benched: Benched) -> None:
    bench = benched(saying("shells", {"verdict": "deny"}, tools=("sh*", "write_file")))
    assert isinstance(await bench.shell("ls"), Refused)
    assert not isinstance(await bench.admit("list_dir", path="."), Refused)
    assert bench.tools.is_quick("list_dir", bench.settings)
    assert not bench.tools.is_quick("shell", bench.settings)
    telling = benched(saying("all", {"verdict": "deny"}))
    assert telling.tools.is_quick("update_plan", telling.settings)
    assert not bench.tools.is_quick(
        "shell", changed(bench.settings, policy=Policy(hooks=telling.settings.policy.hooks))
    )
    assert bench.tools.is_quick("shell", changed(bench.settings, policy=Policy()))


@pytest.mark.requirement("S4")
async def test_a_hook_that_this_process_does_not_have_denies_and_is_not_made_up_from_the_journal(
    benched: Benched,
) -> None:
    bench = benched(saying("known", {}))
    (known,) = bench.settings.policy.hooks
    for other in (
        msgspec.structs.replace(known, name="other"),
        msgspec.structs.replace(known, digest="0" * 64),
    ):
        bench.settings = changed(bench.settings, policy=Policy(hooks=(other,)))
        refused = await bench.shell("ls")
        assert isinstance(refused, Refused)
        assert "the hook failed: " in refused.failure.message
    none = make_tools(secret_in=lambda _: "", own=Own())
    refused = await none.admit(
        Proposal(ToolCall("r", "shell", '{"command":"ls"}', "t1.c1"), "s", bench.settings, check=never_over)
    )
    await none.aclose()
    assert isinstance(refused, Refused)
    assert refused.decisions[-1] == Decision(
        "hook", "deny", "hook:known", "the hook failed: this process has no hooks."
    )


@pytest.mark.requirement("S4")
async def test_no_hook_is_asked_about_a_call_that_nobody_makes_or_after_the_lease(
    benched: Benched, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    bench = benched(noting("look", seen, '{"verdict":"deny"}'))
    assert not isinstance(await bench.admit("shell", None, command="ls"), Refused)

    def lapsed() -> int:
        raise Lapsed

    with pytest.raises(Lapsed):
        await bench.admit("shell", lapsed, command="ls")
    assert not seen.exists()


@pytest.mark.requirement("S4")
async def test_a_program_that_is_gone_is_a_failure_of_its_hook(benched: Benched, tmp_path: Path) -> None:
    program = tmp_path / "hook"
    shutil.copy("/bin/true", program)
    bench = benched(msgspec.structs.replace(saying("gone", {}), command=(str(program),)))
    program.unlink()
    refused = await bench.shell("ls")
    assert isinstance(refused, Refused)
    assert f"{program} could not be started: No such file" in refused.failure.message


@pytest.mark.requirement("S4")
def test_programs_that_do_not_exist_are_told_at_once_if_calls_are_denied_without_them(
    benched: Benched,
) -> None:
    def naming(name: str, program: str, **options: Any) -> HookSource:
        plain = hook(name, "", **options)
        return msgspec.structs.replace(plain, command=(program,), origin=f"/etc/config.toml:{len(name)}")

    with pytest.raises(UsageError) as told:
        benched(naming("one", "/nowhere/hook"), naming("three", "no-such-program"), naming("two", "sh"))
    assert told.value.message.splitlines() == [
        "/etc/config.toml:3: hooks.one.command: there is no program /nowhere/hook.",
        "/etc/config.toml:5: hooks.three.command: there is no program no-such-program.",
    ]
    benched(naming("one", "/nowhere/hook", on_failure="allow"), naming("two", "bin/of-the-workspace"))


@pytest.mark.requirement("S4")
async def test_a_hook_that_writes_too_much_is_ended_at_once(benched: Benched, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; head -c 70000 /dev/zero; exec sleep 60"
    bench = benched(hook("loud", script, timeout_s=60.0))
    start = time.monotonic()
    refused = await bench.shell("ls")
    assert isinstance(refused, Refused)
    assert "it wrote more than 64 KiB" in refused.failure.message
    assert time.monotonic() - start < 30
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.requirement("S4")
@pytest.mark.parametrize("on_failure", ["deny", "allow"])
async def test_where_a_hook_cannot_be_asked_its_on_failure_counts(
    benched: Benched, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> None:
    def full() -> IO[bytes]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(hook_commands, "unnamed_file", full)
    admission = await benched(hook("guard", "echo '{}'", on_failure=on_failure)).shell("ls")
    assert isinstance(admission, Refused if on_failure == "deny" else Allowed)
    (said,) = by_hooks(admission)
    assert "could not be started: Too many open files" in said[2]
