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


def limited(cli: Cli, *lines: str) -> None:
    """Set prices and budgets."""
    cli.configure("\n".join([PRICES, "[budgets]", *lines, ""]))


@pytest.mark.requirement("H3", "B2", "L2-07")
def test_a_reached_budget_ends_the_run_with_its_name_and_resume_sends_nothing(cli: Cli) -> None:
    limited(cli, 'day_usd = "0.10"', 'user_day_usd = "9.00"')
    model = cli.model(*[calls("list_dir") | used(15_000, 100)] * 30)
    run = cli("run", "look", "-m", model, "--max-turns", "40", "--json")
    assert (run.code, run.json["status"], run.json["reason"]) == (3, "limit", "budget_day"), run.err
    again = cli("resume", run.json["session"], "--json")
    assert (again.code, again.json["reason"], again.json["model_calls"]) == (3, "budget_day", 0)
    assert "budget of $0.10 a day" in cli("resume", run.json["session"]).err
    rows = budget(cli)
    assert list(rows) == ["home", "month", "day", "user_day"]
    day = rows["day"]
    assert (day["limit_usd"], day["spent_usd"], day["held_usd"]) == ("0.10", run.json["cost_usd"], "0.00")
    assert Decimal(day["left_usd"]) == Decimal("0.10") - Decimal(day["spent_usd"]) > 0
    assert rows["home"]["limit_usd"] is None
    assert rows["user_day"]["spent_usd"] == day["spent_usd"]
    assert rows["user_day"]["name"] in cli("report", "--cost", "--json").json["by_user"]
    assert "user day" in cli("budget").out
    limited(cli, 'day_usd = "0.20"')
    assert cli("resume", run.json["session"], "--json").json["model_calls"] > 0


def test_with_park_a_run_waits_for_the_next_period(cli: Cli) -> None:
    limited(cli, 'month_usd = "0.001"', 'when_reached = "park"')
    model = cli.model(says("Done.") | used(4_000, 100))
    run = cli("run", "look", "-m", model, "--json")
    assert (run.code, run.json["status"], run.json["reason"]) == (7, "parked", "budget_month"), run.err
    assert run.json["model_calls"] == 0


def test_bad_budgets_are_told_at_once_with_file_line_and_key(cli: Cli) -> None:
    limited(
        cli, 'day_usd = "0"', "month_usd = -1", 'zone = "Mars/Base"', 'when_reached = "wait"', "week_usd = 1"
    )
    run = cli("run", "look", "-m", cli.model(says("Done.")))
    assert run.code == 2
    file = cli.home / "config.toml"
    first = PRICES.count("\n") + 3
    for number, key in enumerate(("day_usd", "month_usd", "zone", "when_reached", "week_usd"), first):
        assert f"{file}:{number}: budgets.{key}" in run.err or f"{file}:{number}: [budgets] {key}" in run.err
    assert cli("budget").code == 2


@pytest.mark.requirement("L2-07")
def test_with_a_budget_a_model_without_a_price_is_refused(cli: Cli) -> None:
    cli.configure('[budgets]\nhome_usd = "5"\n')
    run = cli("run", "look", "-m", "openai:nobody-knows", "-w", str(cli.workspace))
    assert run.code == 2
    assert "A budget is set, but the price of openai:nobody-knows is not known" in run.err
