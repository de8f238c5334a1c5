"""`holdfast budget` and `holdfast report --cost`: the books agree with the sessions, to the micro-dollar."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

PRICES = """
[catalog."script:*"]
input_usd_per_mtok = 1.0
output_usd_per_mtok = 10.0
"""


def used(read: int, written: int) -> dict[str, Any]:
    return {"usage": {"input_tokens": read, "output_tokens": written}}


def budget(cli: Cli) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in cli("budget", "--json").out.splitlines()]
    return {row["scope"]: row for row in rows}


@pytest.mark.requirement("H3", "B2", "B8", "L2-07")
def test_what_sessions_spend_is_in_the_books_and_stays_there_when_they_are_deleted(cli: Cli) -> None:
    cli.configure(PRICES)
    assert [row["spent_usd"] for row in budget(cli).values()] == ["0.00"] * 3
    model = cli.model(calls("list_dir") | used(2_000, 100), says("Done.") | used(3_000, 7))
    run = cli("run", "look", "-m", model, "--json").json
    assert run["cost_usd"] == "0.00607"
    for row in budget(cli).values():
        assert (row["spent_usd"], row["estimated_usd"], row["held_usd"]) == ("0.00607", "0.00", "0.00")
        assert row["limit_usd"] is row["left_usd"] is None
    rows = budget(cli)
    assert list(rows) == ["home", "month", "day"]
    assert rows["home"]["resets_at"] is None
    assert rows["day"]["name"].startswith(rows["month"]["name"])
    assert rows["day"]["name"] < rows["day"]["resets_at"] <= rows["month"]["resets_at"]
    assert cli("delete", run["session"], "--yes").code == 0
    assert budget(cli)["home"]["spent_usd"] == "0.00607"
    shown = cli("budget").out
    assert "$0.0061" in shown
    assert "never" in shown


@pytest.mark.requirement("B8", "L2-07")
def test_a_report_says_what_was_spent_on_what_and_every_breakdown_sums_up(cli: Cli) -> None:
    cli.configure(PRICES)
    model = cli.model(calls("list_dir") | used(2_000, 100), says("Done.") | used(3_000, 7))
    first = cli("run", "look", "-m", model, "--json").json
    # The second run has a turn, and then only its last pass.
    model = cli.model(calls("list_dir") | used(1_000, 0), says("So far.") | used(500, 3), name="landed")
    second = cli("run", "look", "-m", model, "--max-turns", "1", "--json").json
    found = cli("report", "--cost", "--json").json
    total = Decimal(first["cost_usd"]) + Decimal(second["cost_usd"])
    assert Decimal(found["spent_usd"]) == total
    for name in ("by_purpose", "by_model", "by_day", "by_user"):
        assert sum(map(Decimal, found[name].values())) == total, name
    assert set(found["by_purpose"]) == {"work", "last_pass"}
    assert len(found["by_model"]) == 2
    one = cli("report", first["session"], "--cost", "--json").json
    assert (one["spent_usd"], one["by_purpose"]) == (first["cost_usd"], {"work": first["cost_usd"]})
    assert one["since"] is None
    recent = cli("report", "--cost", "--since", "1h", "--json").json
    assert (Decimal(recent["spent_usd"]), recent["since"] is None) == (total, False)
    told = cli("report", "--cost").out
    assert f"${found['spent_usd']}" in told
    assert "last_pass" in told


def test_a_report_on_nothing_known_is_refused(cli: Cli) -> None:
    assert cli("report").code == 2
    assert cli("report", "--cost", "--since", "yesterday").code == 2
    assert cli("report", "01NOSUCHSESSION", "--cost").code == 2
    assert cli("report", "--cost", "--json").json["spent_usd"] == "0.00"
