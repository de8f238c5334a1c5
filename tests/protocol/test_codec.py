"""Events come back from bytes as they were; damage, other versions and broken chains show."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.protocol import events as e
from holdfast.protocol.codec import (
    FIRST_LINK,
    StoredRecord,
    UnreadableEvent,
    decode,
    decode_command,
    decode_event,
    digest_of,
    encode,
    encode_json,
    is_linked,
    json_text,
    to_builtins,
)
from holdfast.protocol.commands import Command, Compact, Continue, Pause, Resolve, Send, Stop, owner
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from tests.core.phases import EXAMPLES
from tests.protocol.strategies import EVENTS, TEXTS

SETTINGS = settings_with(ModelFacts("openai", "m"), "w", turns=3)


def record(event: e.Event, seq: int = 1) -> e.Record:
    return e.Record("session", seq, 1_000 + seq, 2, e.Trigger("command", f"c {seq}"), event)


def chain(*events: e.Event) -> list[StoredRecord]:
    """The events as a store keeps them."""
    link, stored = FIRST_LINK, []
    for seq, event in enumerate(events, 1):
        stored.append(encode(record(event, seq), link))
        link = stored[-1].link
    return stored


def broken_at(stored: list[StoredRecord]) -> int | None:
    """The place of the first record that does not follow the one before it."""
    link = FIRST_LINK
    for at, each in enumerate(stored):
        if not is_linked(link, each):
            return at
        link = each.link
    return None


@pytest.mark.untraced
@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=lambda kind: kind.__name__)
@examples(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(kind: type[e.Event], data: st.DataObject) -> None:
    event = data.draw(EVENTS[kind])
    stored = encode(record(event), FIRST_LINK)
    assert decode(stored) == record(event)
    assert (stored.type, stored.v) == (kind.__name__, e.VERSIONS[kind])
    assert encode_json(to_builtins(event)) == stored.body


def test_a_default_takes_no_room() -> None:
    assert encode(record(e.RunPaused()), FIRST_LINK).body == b"{}"


@given(TEXTS)
def test_a_text_stands_inside_a_json_string_as_an_encoder_writes_it(text: str) -> None:
    assert b'"' + json_text(text) + b'"' == encode_json(text)
    assert msgspec.json.decode(b'"' + json_text(text) + b'"') == text


@pytest.mark.parametrize(
    "body",
    [
        Send("x", SETTINGS),
        Continue(),
        Continue(SETTINGS),
        Resolve("a", "deny", "no"),
        Pause(),
        Stop("late"),
        Compact(),
        Compact(is_undo=True),
    ],
    ids=lambda body: type(body).__name__,
)
def test_every_command_comes_back_as_it_was(body: object) -> None:
    command = Command("id", "session", owner("cli:ann"), body)  # type: ignore[arg-type]
    assert decode_command(encode_json(command)) == command


# --- the chain ----------------------------------------------------------------------------------


@pytest.mark.requirement("H1")
@examples(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(list(EXAMPLES.values())), min_size=1, max_size=6), st.data())
def test_a_flipped_bit_of_any_record_shows(events: list[e.Event], data: st.DataObject) -> None:
    stored = chain(*events)
    assert broken_at(stored) is None
    at = data.draw(st.integers(0, len(stored) - 1))
    body = bytearray(stored[at].body)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    stored[at] = replace(stored[at], body=bytes(body))
    assert broken_at(stored) == at


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("field", ["seq", "at_ms", "epoch", "cause", "type", "v"])
def test_a_change_of_any_field_of_the_envelope_shows(field: str) -> None:
    stored = chain(e.RunPaused(), e.RunResumed(), e.RunPaused())
    value = getattr(stored[1], field)
    stored[1] = replace(stored[1], **{field: value + 1 if isinstance(value, int) else value + "x"})
    assert broken_at(stored) == 1


@pytest.mark.requirement("H1")
def test_a_cut_and_a_reorder_show() -> None:
    stored = chain(*(e.MessageReceived(f"words {number}") for number in range(5)))
    assert broken_at([*stored[:2], *stored[3:]]) == 2
    assert broken_at(stored[1:]) == 0
    assert broken_at([stored[0], stored[2], stored[1], *stored[3:]]) == 1
    assert broken_at(stored[:3]) is None, "a missing end is what a last link kept elsewhere shows"


def erased(stored: StoredRecord) -> StoredRecord:
    return replace(stored, body=b"", digest=digest_of(stored.body))


@pytest.mark.requirement("H1")
def test_an_erased_record_holds_the_chain_together_and_proves_its_place() -> None:
    stored = chain(*(e.MessageReceived(f"words {number}") for number in range(4)))
    stored[1], stored[2] = erased(stored[1]), erased(stored[2])
    assert broken_at(stored) is None
    assert broken_at([stored[0], stored[2], stored[1], stored[3]]) == 1
    assert broken_at([stored[0], *stored[2:]]) == 1
    assert broken_at([stored[0], replace(stored[1], body=b"{}"), *stored[2:]]) == 1
    assert broken_at([stored[0], replace(stored[1], digest=b""), *stored[2:]]) == 1
    assert broken_at([stored[0], replace(stored[1], at_ms=5), *stored[2:]]) == 1


def test_an_erased_record_is_told_from_a_damaged_one() -> None:
    with pytest.raises(UnreadableEvent, match="was erased") as caught:
        decode(erased(chain(e.MessageReceived("words"))[0]))
    assert caught.value.why == "erased"


def test_a_branch_shares_its_parents_records() -> None:
    stored = chain(e.RunPaused(), e.RunResumed())
    assert broken_at([replace(each, session="branch") for each in stored]) is None


# --- what cannot be read --------------------------------------------------------------------------


def test_an_unknown_type_asks_for_an_upgrade() -> None:
    with pytest.raises(UnreadableEvent, match="does not know PlanMade version 1") as caught:
        decode_event("PlanMade", 1, b"{}")
    assert caught.value.why == "newer"


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UnreadableEvent, match="upgrade") as caught:
        decode_event("RunPaused", 2, b"{}")
    assert caught.value.why == "newer"


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_told_as_damage(version: int) -> None:
    with pytest.raises(UnreadableEvent, match=f"its version is {version}") as caught:
        decode_event("RunPaused", version, b"{}")
    assert caught.value.why == "damaged"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"by":1}', b'{"by":"\xff"}', b"\x00"])
def test_a_damaged_body_is_told_as_damage(body: bytes) -> None:
    with pytest.raises(UnreadableEvent, match="RunPaused record is damaged") as caught:
        decode_event("RunPaused", 1, body)
    assert caught.value.why == "damaged"


def test_a_field_that_a_later_version_added_is_ignored() -> None:
    assert decode_event("RunPaused", 1, b'{"by":"ann","mood":"calm"}') == e.RunPaused("ann")
