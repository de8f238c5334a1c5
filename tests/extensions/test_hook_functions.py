"""Hooks that are functions of installed packages, and the registry that they come from."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.app import _OWN_FACTORIES
from holdfast.errors import Lapsed, UsageError
from holdfast.extensions.factories import Factories
from holdfast.extensions.hooks import ConfiguredHooks
from holdfast.protocol.hooks import Hook, HookAnswer, HookSource, Occasion, digest_of
from holdfast.redact import Redactor
from holdfast.testing.clock import never_over
from tests.edge.machine import make_machine
from tests.library.test_sections import package

CODE = """
import asyncio, sys, time
from pathlib import Path
Path(__file__).with_name("imported").touch()

def deny(event): return {"verdict": "deny", "reason": event["arguments"]["command"]}
async def change(event):
    await asyncio.sleep(0)
    event["arguments"]["command"] = "true"
    return {"arguments": event["arguments"]}
def nothing(event): event.clear()
def wrong(event): raise ValueError("no")
def endless(event): time.sleep(3)
async def waiting(event): await asyncio.sleep(600)
def large(event): return {"reason": "x" * 70_000}
def odd(event): return {"arguments": {"x": {1, 2}.__iter__()}}
def leave(event): sys.exit(3)
def late(event): raise TimeoutError
number = 3
"""
NAMES = ("deny", "change", "nothing", "wrong", "endless", "waiting", "large", "odd", "leave", "late")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[list[str]]:
    """Where a package with hooks is installed."""
    rows = ["[holdfast.hooks]", *(f"{name} = guards:{name}" for name in NAMES), "gone = guards:gone"]
    rows += ["command = guards:deny"]
    found = package(tmp_path / "site", CODE, *rows, name="guards")
    sys.path.insert(0, found[0])
    yield found
    sys.path.remove(found[0])
    sys.modules.pop("guards", None)


def source(name: str, timeout_s: float = 0.2) -> HookSource:
    hook = Hook(name, ("before_tool",), timeout_s=timeout_s, digest=digest_of((), name))
    return HookSource(hook, python=name, origin="config.toml:3")


def hooks_of(path: list[str], *sources: HookSource) -> ConfiguredHooks:
    return ConfiguredHooks(sources, Redactor(), {}, Factories(_OWN_FACTORIES, path))


Ask = Callable[[str], Awaitable[HookAnswer]]


@pytest.fixture
def ask(path: list[str]) -> Ask:
    async def asked(name: str) -> HookAnswer:
        each = source(name)
        facts = {"tool": "shell", "arguments": {"command": "ls"}}
        hooks = hooks_of(path, each)
        answer = await hooks.ask(each.hook, Occasion("before_tool", "s", "/w", "k", facts), never_over)
        await hooks.aclose()
        assert facts["arguments"] == {"command": "ls"}, "the hook has its own copy"
        return answer

    return asked


@pytest.mark.requirement("S4", "C18")
async def test_a_function_of_a_package_is_asked_like_a_command(ask: Ask) -> None:
    assert await ask("deny") == HookAnswer("deny", "ls")
    assert await ask("change") == HookAnswer("", "", {"command": "true"})
    assert await ask("nothing") == HookAnswer()


@pytest.mark.requirement("S4")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("wrong", "it raised ValueError: no"),
        ("endless", "it did not answer within 0.2 s"),
        ("waiting", "it did not answer within 0.2 s"),
        ("large", "its answer has more than 64 KiB"),
        ("odd", "its answer cannot be written as JSON"),
        ("leave", "it raised RuntimeError: the function called sys.exit(3)"),
        ("late", "it raised TimeoutError"),
    ],
)
async def test_a_function_that_fails_is_a_hook_that_fails(ask: Ask, name: str, why: str) -> None:
    answer = await ask(name)
    assert (answer.verdict, answer.reason) == ("deny", f"the hook failed: {why}.")


@pytest.mark.requirement("S4", "L7")
@pytest.mark.parametrize("name", ["nothing", "change"])
async def test_a_function_whose_lease_is_over_is_not_asked(path: list[str], name: str) -> None:
    def over() -> int:
        raise Lapsed

    each = source(name)
    occasion = Occasion("before_tool", "s", "/w", "k", {"arguments": {}})
    with pytest.raises(Lapsed):
        await hooks_of(path, each).ask(each.hook, occasion, over)


@pytest.mark.requirement("C18")
def test_only_what_the_configuration_names_is_loaded_and_an_unknown_name_is_an_error(path: list[str]) -> None:
    imported = Path(path[0]) / "imported"
    factories = Factories(_OWN_FACTORIES, path)
    assert factories.has("hooks", "deny")
    assert set(factories.names("hooks")) == {*NAMES, "gone", "command"}
    assert factories.find("hooks", "command").__name__ == "CommandHook", "no package takes its place"
    assert not imported.exists()
    for name, told in (
        ("dny", "config.toml:3: hooks.dny.python: there is no hook 'dny'. Did you mean deny?"),
        ("xyzzy", "Installed packages offer: change, "),
        ("gone", "cannot be loaded: AttributeError"),
    ):
        with pytest.raises(UsageError) as raised:
            hooks_of(path, source(name))
        assert told in raised.value.message
    assert imported.exists()


@pytest.mark.requirement("C18")
def test_a_run_with_an_unknown_function_ends_with_the_file_and_the_line(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    machine.configure('[hooks.mine]\non = ["before_tool"]\npython = "guardian"\n')
    done = machine.holdfast("run", "Go.", "-m", machine.script([{"text": "Done."}]))
    assert done.code == 2
    assert f"{machine.home}/config.toml:3: hooks.mine.python: there is no hook 'guardian'" in done.err
    rows = {row["id"]: row for row in machine.holdfast("doctor", "--json").rows}
    assert rows["hooks"]["severity"] == "fault"
    machine.configure('[hooks.mine]\non = ["before_tool"]\npython = "x"\ncommand = ["x"]\n')
    both = machine.holdfast("run", "Go.")
    assert both.code == 2
    assert "[hooks.mine] has a command and a python: it can have only one" in both.err
    machine.configure(f'[hooks.mine]\non = ["before_tool"]\ncommand = ["{sys.executable}"]\n')
    rows = {row["id"]: row for row in machine.holdfast("doctor", "--json").rows}
    assert rows["hooks"]["severity"] == "ok"
