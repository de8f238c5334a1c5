"""Which kinds of text an encoded message has."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from holdfast.context.kinds import kinds_in
from holdfast.protocol.kinds import NO_KINDS, Kinds, total
from holdfast.protocol.ports import Wire
from tests.context.talks import ANTHROPIC, OPENAI, RESPONSES, Talk
from tests.tokens import texts

pytestmark = pytest.mark.requirement("C6")


def encoded(text: str, role: str = "tool") -> bytes:
    return json.dumps({"role": role, "content": text}, ensure_ascii=False).encode()


def shares(text: str) -> dict[str, float]:
    element = encoded(text)
    kinds = kinds_in([(element, 0)], NO_KINDS)
    return {name: getattr(kinds, name) / len(element) for name in Kinds.__struct_fields__}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("english", "prose"), ("german", "prose"), ("python", "code"), ("json", "json"), ("cjk", "cjk")],
)
def test_text_is_of_its_kind(name: str, kind: str) -> None:
    told = [shares(texts.KINDS[name](Random(seed), 6_000)) for seed in range(8)]
    found = {each: sum(shares[each] for shares in told) / len(told) for each in told[0]}
    assert max(found, key=found.__getitem__) == kind
    assert found[kind] > 0.7


def test_the_digits_of_a_log_count_apart() -> None:
    text = texts.log(Random(1), 6_000)
    assert shares(text)["digits"] == pytest.approx(sum(map(str.isdigit, text)) / len(encoded(text)))


def test_dashes_and_umlauts_are_no_wide_script() -> None:
    assert shares("“Grüße” — naïve café… ünd → weiter")["cjk"] == 0
    assert shares("你好, 세상, こんにちは 🎈")["cjk"] > 0


def test_a_long_message_may_mix_kinds() -> None:
    kinds = kinds_in([(encoded(texts.english(Random(1), 8_000) + texts.data(Random(1), 8_000)), 0)], NO_KINDS)
    assert kinds.prose > 5_000
    assert kinds.json > 4_000


def test_media_count_by_their_weight() -> None:
    element = encoded("A" * 100_000)
    assert kinds_in([(element, len(element) - 700), (b"plain words", 0)], Kinds(base=9)) == Kinds(
        9, prose=11, media=700
    )


@given(st.lists(st.binary() | st.text().map(encoded)))
def test_every_byte_counts_once(elements: list[bytes]) -> None:
    kinds = kinds_in([(each, 0) for each in elements], NO_KINDS)
    assert min(astuple(kinds)) >= 0
    assert sum(astuple(kinds)) == sum(map(len, elements))
    assert total([kinds, Kinds(base=5)]) == kinds_in([(each, 0) for each in elements], Kinds(base=5))


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES, ANTHROPIC])
def test_a_request_has_the_kinds_of_all_its_messages_also_after_a_compaction_and_a_resume(wire: Wire) -> None:
    talk = Talk(wire)
    talk.words("Look at all of it, please.")
    random = Random(4)
    for name in (*texts.KINDS, *texts.KINDS):
        talk.turn(texts.KINDS[name](random, 3_000), most_bytes=24_000)
        edit = talk.render()
        commas = edit.size_bytes - sum(astuple(edit.kinds))
        assert 0 <= commas < 40
        assert edit.kinds.base == len(talk.base)
        assert talk.render(talk.reload()).kinds == edit.kinds
    assert any(not edit.keep for edit in talk.edits[1:]), "the view was never compacted"
