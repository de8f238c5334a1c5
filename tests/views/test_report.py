"""The report of a run: why it rests, from the records alone."""

from __future__ import annotations

import pytest

from holdfast.core.state import next_key
from holdfast.protocol.failures import Failure
from holdfast.protocol.outcomes import Unready
from holdfast.views.report import report_of
from tests.core.stories import opened


@pytest.mark.requirement("B3")
def test_a_session_that_waits_for_its_provider_says_what_the_provider_said() -> None:
    story = opened()
    failure = Failure("provider_unready", "The server starts at ten.")
    story.found(next_key(story.state), Unready(failure, story.now_ms + 3_600_000))
    found = report_of(story.state, [], story.records)
    assert (found.status, found.reason) == ("parked", "provider_unready")
    assert found.message == "The server starts at ten."
