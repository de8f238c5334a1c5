"""The hash of a fence: what a call's intent records of its sandbox."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.protocol.fence import Fence

FENCE = Fence(("/work",), readable=("/opt/tool",))


@pytest.mark.parametrize(
    "changes",
    [{"writable": ("/work", "/more")}, {"readable": ()}, {"private": ("/home/ann",)}, {"memory_bytes": 1}],
)
def test_each_rule_of_a_fence_changes_its_hash(changes: dict[str, object]) -> None:
    assert replace(FENCE, **changes).digest() != FENCE.digest()


def test_what_is_masked_and_protected_within_its_rules_does_not_change_the_hash_of_a_fence() -> None:
    assert replace(FENCE, masked=("/work/.env",), protected=("/work/.git/hooks",)).digest() == FENCE.digest()
