"""What a provider reads from its cache, by the rules that it documents: exact prefixes, looked for at each mark."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import Text, ToolCall
from holdfast.protocol.ports import Wire
from holdfast.protocol.wires import PointedWire
from holdfast.providers.anthropic import AnthropicWire
from holdfast.providers.text_model import TextWire
from holdfast.testing.valid_requests import problem
from tests.context.talks import OPENAI, Talk, call

LOOKBACK = 20
"""How many blocks before a mark the service looks for something that it has kept."""
MARK = "cache_control"
TURNS = 41
MANY = (4, 10, 16, 22, 28, 34)
"""The turns with 30 calls."""


class Service:
    """The cache of the service, as https://docs.claude.com/en/docs/build-with-claude/prompt-caching describes it."""

    def __init__(self) -> None:
        self._kept: dict[str, int] = {}
        self.read = 0
        self.possible = 0
        self._last: list[str] = []

    def take(self, body: bytes) -> None:
        request = msgspec.json.decode(body)
        blocks = [*request.get("system", ()), *(b for each in request["messages"] for b in each["content"])]
        marked = [MARK in block for block in blocks]
        marked[-1] = marked[-1] or MARK in request
        plain = [{key: value for key, value in block.items() if key != MARK} for block in blocks]
        names, sizes, running, size = [], [], hashlib.sha256(), 0
        for block in plain:
            written = msgspec.json.encode(block)
            running.update(written)
            size += len(written)
            names.append(running.hexdigest())
            sizes.append(size)
        self.possible += self._shared(names, sizes)
        self.read += max(
            [0, *(self._found(names, sizes, at) for at, is_marked in enumerate(marked) if is_marked)]
        )
        self._kept |= {names[at]: sizes[at] for at, is_marked in enumerate(marked) if is_marked}
        self._last = names

    def _found(self, names: list[str], sizes: list[int], at: int) -> int:
        within = range(at, max(at - LOOKBACK, -1), -1)
        return next((sizes[place] for place in within if names[place] in self._kept), 0)

    def _shared(self, names: list[str], sizes: list[int]) -> int:
        same = [at for at, (one, other) in enumerate(zip(names, self._last, strict=False)) if one == other]
        return sizes[same[-1]] if same else 0


def worked(wire: Wire) -> Talk:
    """41 requests, six of them with 30 calls."""
    talk = Talk(wire)
    talk.words("Look at all of it.")
    for turn in range(1, TURNS):
        talk.send()
        count = 30 if turn in MANY else 1
        talk.respond(Text("I look."), *[ToolCall(f"c{turn}_{n}", "grep", "{}") for n in range(count)])
        for number in range(1, count + 1):
            talk.result(number, f"{turn} {number}: so it says. " * 40)
    talk.send()
    return talk


@pytest.mark.requirement("C5")
@pytest.mark.parametrize(
    ("cache", "least", "most"), [("blocks", 1.0, 1.0), ("top", 0.75, 0.9), ("off", 0, 0)]
)
def test_marks_on_blocks_make_a_service_read_all_that_it_had_before(
    cache: Any, least: float, most: float
) -> None:
    service = Service()
    for body in worked(AnthropicWire("anthropic", cache)).sent:
        service.take(body)
    assert least <= service.read / service.possible <= most


@pytest.mark.requirement("C5", "L8")
def test_a_mark_that_moves_stores_no_message_twice() -> None:
    marked, plain = worked(AnthropicWire("a", "blocks")), worked(AnthropicWire("a", "off"))
    assert [each.rest for each in marked.edits] == [each.rest for each in plain.edits]
    assert marked.bodies() == marked.sent
    for edit, body in zip(marked.edits, marked.sent, strict=True):
        assert len(edit.points) <= 2
        assert body.count(b'"cache_control"') == len(edit.points) + 1  # and the system prompt


def test_the_marks_are_at_the_end_of_this_request_and_of_the_last_answered_one() -> None:
    talk = Talk(AnthropicWire("a", "blocks"))
    talk.words("Look.")
    for _ in range(2):  # the second one repeats the first, which failed
        talk.send()
        assert [point.place for point in talk.edits[-1].points] == [0]
        talk.note(e.ModelCallFailed("m", Failure("provider_transient", "No.")))
    talk.turn("one")
    assert [point.place for point in talk.render().points] == [0, 2]
    talk.send()
    talk.note(e.ModelCallFailed("m", Failure("provider_transient", "No.")))
    talk.words("Go on.")
    assert [point.place for point in talk.render().points] == [0, 3]
    assert [point.place for point in talk.render(talk.reload()).points] == [0, 3]


def test_an_empty_result_has_no_mark() -> None:
    talk = Talk(AnthropicWire("a", "blocks"))
    talk.words("Look.")
    talk.turn("")
    assert [point.place for point in talk.render().points] == [0]
    talk.turn("not empty")
    assert [point.place for point in talk.render().points][-1] == 4


def test_a_side_call_has_the_marks_of_the_request_that_it_adds_to() -> None:
    wire = AnthropicWire("a", "blocks")
    talk = Talk(wire)
    talk.words("Look.")
    talk.turn("one")
    body = talk.send()
    edit = talk.conversation.aside(wire, talk.base, "How is it going?")
    told, before = edit.body(b"]}"), body.rpartition(b"]")[0]
    assert told.startswith(before)
    assert edit.hasher.hexdigest() == hashlib.sha256(edit.body(b"")).hexdigest()
    assert edit.points == talk.edits[-1].points


def test_only_a_wire_with_marks_has_points() -> None:
    for wire in (
        OPENAI,
        TextWire(OPENAI, "hermes", "S"),
        AnthropicWire("a", "top"),
        AnthropicWire("a", "off"),
    ):
        talk = Talk(wire)
        talk.words("Look.")
        assert talk.render().points == ()
    wrapped = TextWire(AnthropicWire("a", "blocks"), "hermes", "S")
    assert isinstance(wrapped, PointedWire)
    talk = Talk(wrapped)
    talk.words("Look.")
    assert len(talk.render().points) == 1


def test_what_the_configuration_keeps_for_an_hour_says_so_in_each_mark() -> None:
    talk = Talk(AnthropicWire("a", "blocks", keeps_an_hour=True))
    talk.words("Look.")
    talk.respond(Text("x"), call())
    talk.result(1, "one")
    body = talk.send()
    assert (
        body.count(b'"cache_control":{"type":"ephemeral","ttl":"1h"}') == body.count(b'"cache_control"') == 2
    )
    assert (
        problem(body.replace(b'"max_tokens"', b'"tools":[{"name":"grep"}],"max_tokens"'), "anthropic") == ""
    )
