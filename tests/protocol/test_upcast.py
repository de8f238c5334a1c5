"""Older versions of an event are brought up to date one step at a time."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.protocol import codec, events, upcast
from holdfast.protocol.codec import UnreadableEvent, decode_event
from holdfast.protocol.events import RunPaused


def first(body: dict[str, Any]) -> dict[str, Any]:
    return {"who": body["user"]}


def second(body: dict[str, Any]) -> dict[str, Any]:
    return {"by": f"cli:{body['who']}"}


@pytest.fixture
def third_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """RunPaused as if it had changed its meaning twice."""
    monkeypatch.setitem(events.VERSIONS, RunPaused, 3)
    monkeypatch.setattr(upcast, "STEPS", {("RunPaused", 1): first, ("RunPaused", 2): second})
    assert codec.VERSIONS is events.VERSIONS


@pytest.mark.usefixtures("third_version")
def test_every_older_version_comes_out_as_the_current_one() -> None:
    assert decode_event("RunPaused", 1, b'{"user":"ann"}') == RunPaused("cli:ann")
    assert decode_event("RunPaused", 2, b'{"who":"ann"}') == RunPaused("cli:ann")
    assert decode_event("RunPaused", 3, b'{"by":"cli:ann"}') == RunPaused("cli:ann")


@pytest.mark.usefixtures("third_version")
def test_an_older_body_that_is_damaged_is_told_as_damage() -> None:
    with pytest.raises(UnreadableEvent, match="damaged"):
        decode_event("RunPaused", 1, b'{"user":')


def test_a_missing_step_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(events.VERSIONS, RunPaused, 2)
    with pytest.raises(KeyError):
        decode_event("RunPaused", 1, b"{}")


def test_every_event_with_a_second_version_has_all_its_steps() -> None:
    wanted = {(kind.__name__, v) for kind, version in events.VERSIONS.items() for v in range(1, version)}
    assert set(upcast.STEPS) == wanted
