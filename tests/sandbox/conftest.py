"""What the tests of sandboxes share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.sandbox import bubblewrap
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.process import Processes


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = bubblewrap.make()
    assert isinstance(made, Bubblewrap)
    processes = Processes(made)
    yield processes
    await processes.aclose()
