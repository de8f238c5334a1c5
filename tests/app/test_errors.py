"""Errors while clearing up."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from holdfast.errors import clearing_up


@pytest.mark.requirement("A4", "L5")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/home/ann"), "Permission denied"),
        (ValueError("pa" + "55"), "ValueError"),
    ],
)
def test_what_goes_wrong_while_clearing_up_is_logged_without_its_text(
    error: Exception, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), clearing_up("the socket"):
        raise error
    assert caplog.messages == [f"the socket could not be cleared up: {why}"]
