"""The rehearsals of an agent: what they show, and what they find in an agent that is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Context, tool
from holdfast.protocol.events import Attached, ToolCallAbandoned
from holdfast.testing import rehearsal
from holdfast.testing.faults import Faults
from holdfast.testing.rehearsal import rehearse, rehearse_crashes


class Bank:
    """Another system, which knows what it did by the keys that it was given."""

    def __init__(self) -> None:
        self.charges: Counter[str] = Counter()
        self.calls = 0


@tool(effect="network", on_interrupt="rerun")
async def charge(ctx: Context[Bank], amount: int) -> str:
    """Charge the card. The bank takes a key only once."""
    ctx.deps.calls += 1
    ctx.deps.charges[ctx.key] = amount
    return f"charged {amount}"


@tool(effect="network", on_interrupt="rerun", name="charge")
def charge_carelessly(ctx: Context[Bank], amount: int) -> str:
    """Charge the card, without a key."""
    ctx.deps.charges[str(len(ctx.deps.charges))] = amount
    return f"charged {amount}"


@tool(effect="network", name="charge")
async def charge_once(ctx: Context[Bank], amount: int) -> str:
    """Charge the card, never twice."""
    ctx.deps.charges[str(len(ctx.deps.charges))] = amount
    return f"charged {amount}"


REPLIES: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "charge", "arguments": {"amount": 5}}]},
    {"tool_calls": [{"name": "write_file", "arguments": {"path": "note.txt", "content": "paid"}}]},
    {"text": "It is paid."},
]


def shop(function: Any = charge, **given: Any) -> Agent[str]:
    return Agent(**{"model": "openai:gpt-5.5", "tools": [function, "write_file"], **given})


@pytest.mark.requirement("S14", "H1")
def test_an_agent_is_rehearsed_with_a_crash_around_each_commit(tmp_path: Path) -> None:
    faults, again = [], 0
    for played in rehearse_crashes(shop, "Charge 5.", REPLIES, tmp_path, deps=Bank):
        assert (played.result.status, played.result.text) == ("done", "It is paid.")
        assert list(played.deps.charges.values()) == [5]
        assert (played.workspace / "note.txt").read_text() == "paid"
        again += played.deps.calls > 1
        faults.append(played.faults)
        lives = sum(isinstance(event.body, Attached) for event in played.events)
        assert lives in (1, 2)
    assert faults[0] == Faults()
    assert len(faults) == len(set(faults)) > 8
    assert again, "somewhere the call was repeated, under the same key"


def test_a_rehearsal_finds_an_effect_that_happens_twice(tmp_path: Path) -> None:
    played = rehearse_crashes(
        lambda **given: shop(charge_carelessly, **given), "Charge 5.", REPLIES, tmp_path, deps=Bank
    )
    assert max(len(each.deps.charges) for each in played) == 2


def test_a_call_that_may_not_be_repeated_is_told_as_unknown_and_happens_once(tmp_path: Path) -> None:
    unknown = 0
    for played in rehearse_crashes(
        lambda **given: shop(charge_once, **given), "Charge 5.", REPLIES, tmp_path, deps=Bank
    ):
        assert len(played.deps.charges) <= 1
        unknown += any(isinstance(event.body, ToolCallAbandoned) for event in played.events)
    assert unknown


def test_one_rehearsal_needs_no_key_and_no_deps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    played = rehearse(
        lambda **given: Agent(**{"model": "openai:gpt-5.5", **given}), "Hi.", [{"text": "Hello."}], tmp_path
    )
    assert played.result.text == "Hello."
    assert played.deps is None


def test_a_journal_that_is_not_as_it_must_be_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: object) -> None:
        raise AssertionError("the row does not match the journal")

    monkeypatch.setattr(rehearsal, "check_session", wrong)
    with pytest.raises(AssertionError, match="does not match"):
        rehearse(lambda **given: Agent(**given), "Hi.", [{"text": "Hello."}], tmp_path)
