"""A list says of a session that it is running as long as somebody drives it, and no longer."""

from __future__ import annotations

import pytest

from tests.edge.machine import Machine, call
from tests.lease.sleeping import asleep


@pytest.mark.requirement("L8", "H5")
def test_a_session_is_running_until_its_driver_is_killed(machine: Machine) -> None:
    def found(*flags: str) -> list[str]:
        return [row["status"] for row in machine.holdfast("sessions", "--json", *flags).rows]

    model = machine.script([{"tool_calls": [call("shell", command="echo done >> effects")]}])
    with asleep(machine, "commit:ToolCallStarted", "-m", model, LEASE_MS="600000") as driver:
        assert found() == found("--status", "running") == ["running"]
        assert found("--status", "open") == []
        assert machine.holdfast("show", "last", "--json").json["status"] == "running"
        driver.kill()
        driver.wait()
        assert found() == found("--status", "open") == ["open"]
        assert found("--status", "running") == []
        assert machine.holdfast("show", "last", "--json").json["status"] == "open"
