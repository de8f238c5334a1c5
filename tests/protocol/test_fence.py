"""The hash of a fence: what a call's intent records of its sandbox."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.protocol.fence import Fence

FENCE = Fence(("/work",), readable=("/opt/tool",))


CHANGES: dict[str, object] = {
    "writable": ("/work", "/more"),
    "readable": (),
    "private": ("/home/ann",),
    "memory_bytes": 1,
    "file_bytes": 1,
    "processes": 1,
    "cpu_s": 1,
    "files": {"/home/ann/.gitconfig": "[user]"},
    "hosts": ("example.com",),
    "links": {"/opt/tool": "tool-1.2"},
}


def test_each_rule_of_a_fence_changes_its_hash() -> None:
    assert {*CHANGES, "masked", "protected"} == {*Fence.__struct_fields__}
    hashes = {replace(FENCE, **{name: value}).digest() for name, value in CHANGES.items()}
    assert len(hashes - {FENCE.digest()}) == len(CHANGES)


def test_what_is_masked_and_protected_within_its_rules_does_not_change_the_hash_of_a_fence() -> None:
    assert replace(FENCE, masked=("/work/.env",), protected=("/work/.git/hooks",)).digest() == FENCE.digest()
