"""Every provider passes the suite that is shipped for all of them."""

from __future__ import annotations

import functools

import pytest

from holdfast.testing.conformance_provider import CHECKS, Check
from tests.providers.subjects import prepared

PROVIDERS_UNDER_TEST = (
    "openai",
    "openai-responses",
    "openrouter",
    "mistral",
    "google",
    "anthropic",
    "script",
)


@pytest.mark.requirement("C2", "C15", "L2-06", "L7")
@pytest.mark.parametrize("name", PROVIDERS_UNDER_TEST)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_every_provider(check: Check, name: str) -> None:
    await check(functools.partial(prepared, name))
