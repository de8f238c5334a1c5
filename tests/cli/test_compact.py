"""`holdfast compact` cuts what the model sees of a session at rest, and brings it back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says

LONG = "This is line {} of a file that somebody reads.\n"


def events(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("show", "cli:a", "--events", "--json").out.splitlines()]


def requests(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("show", "cli:a", "--requests", "--json").out.splitlines()]


def worked(cli: Cli, *more: str) -> str:
    """A session that has read a file five times; returns its model."""
    (cli.workspace / "a.txt").write_text("".join(LONG.format(n) for n in range(100)))
    reads = [calls("read_file", path="a.txt", offset=n + 1) for n in range(5)]
    write = calls("write_file", path="made.txt", content="made")
    model = cli.model(*reads, write, says("Done."), says("Again."), says("Once more."))
    assert cli("run", "Read a.txt.", "-m", model, "-s", "cli:a", "--autonomy", "full", *more).code == 0
    return model


@pytest.mark.requirement("C9")
def test_a_session_at_rest_is_compacted_at_once_and_the_next_request_has_the_short_view(cli: Cli) -> None:
    worked(cli)
    before = len(cli("show", "cli:a", "--request", "7").out)
    done = cli("compact", "cli:a", "--json")
    assert done.code == 0
    assert done.json["status"] == "compacted"
    # Both numbers are about sizes of requests: the last one that was sent, and the one that would be next.
    sent = requests(cli)[-1]["expected_tokens"]
    assert done.json["tokens_before"] == pytest.approx(sent, rel=0.05)
    assert done.json["tokens_after"] < sent / 2
    assert 0 < done.json["kept_share"] < 1
    (compacted,) = [each for each in events(cli) if each["type"] == "ContextCompacted"]
    assert compacted["body"]["left_out"] == done.json["left_out"]
    assert cli("run", "And now?", "-s", "cli:a").out == "Again.\n"
    assert requests(cli)[-1]["expected_tokens"] == pytest.approx(done.json["tokens_after"], rel=0.05)
    request = cli("show", "cli:a", "--request", "8").out
    assert len(request) < 0.6 * before
    for kept in ("Read a.txt.", "made.txt (record", "And now?", "The view was cut to save room: records"):
        assert kept in request
    assert "recall_history searches them, and read_output shows record N as handle rN" in request
    assert cli("replay", "cli:a").code == 0
    assert cli("fsck").code == 0


@pytest.mark.requirement("C9")
def test_a_compaction_after_an_undo_leaves_out_the_same_as_the_first_one(cli: Cli) -> None:
    worked(cli)
    first = cli("compact", "cli:a", "--json").json
    assert cli("compact", "cli:a", "--undo").code == 0
    again = cli("compact", "cli:a", "--json").json
    assert again["left_out"] == first["left_out"]
    assert again["tokens_after"] < again["tokens_before"]
    assert cli("run", "And now?", "-s", "cli:a").out == "Again.\n"
    request = cli("show", "cli:a", "--request", "8").out
    assert request.count("line 50 of a file") < 5
    assert "The view was cut" in request
    assert "made.txt" in request
    assert cli("replay", "cli:a").code == 0


@pytest.mark.requirement("C9")
def test_a_compaction_can_be_undone(cli: Cli) -> None:
    worked(cli)
    assert cli("compact", "cli:a", "--undo", "--json").json["status"] == "nothing"
    assert cli("compact", "cli:a").code == 0
    undone = cli("compact", "cli:a", "--undo")
    assert (undone.code, undone.out.split(":")[0]) == (0, "The model sees the whole conversation again")
    assert cli("run", "And now?", "-s", "cli:a").out == "Again.\n"
    request = cli("show", "cli:a", "--request", "8").out
    assert request.count("line 50 of a file") == 5
    assert "The view was cut" not in request
    assert cli("replay", "cli:a").code == 0


@pytest.mark.requirement("C9")
def test_a_conversation_that_does_not_fit_is_not_brought_back(cli: Cli) -> None:
    cli.configure('[catalog."script:*"]\ncontext_tokens = 8000\n')
    worked(cli)
    kept = cli("compact", "cli:a", "--undo")
    assert (kept.code, "does not fit into the model's window" in kept.out) == (1, True)
    assert "ContextRestored" not in [each["type"] for each in events(cli)]


@pytest.mark.requirement("C9")
def test_there_is_nothing_to_leave_out_of_a_short_session(cli: Cli) -> None:
    cli("run", "Hello.", "-m", cli.model(says("Hello.")), "-s", "cli:a")
    assert cli("compact", "cli:a").out == "There is nothing to leave out yet.\n"
    assert cli("compact", "cli:b").code == 2


@pytest.mark.requirement("C9")
def test_chat_compacts_the_session_that_it_shows(cli: Cli) -> None:
    worked(cli)
    with cli.terminal("chat", "-s", "cli:a") as screen:
        screen.until(">")
        screen.type("/compact\r")
        screen.until("The model sees about")
        screen.type("/compact undo\r")
        screen.until("The model sees the whole conversation again")
        screen.type("/compact back\r")
        screen.until("say /compact, or /compact undo")
        screen.type("/exit\r")
        assert screen.end() == 0
    recorded = [each["type"] for each in events(cli)]
    assert recorded.index("ContextCompacted") < recorded.index("ContextRestored")


@pytest.mark.requirement("C9")
def test_the_process_that_drives_a_session_compacts_it_for_others_and_for_a_chat(cli: Cli) -> None:
    worked(cli)
    wait = calls("shell", command="until test -e go; do sleep 0.05; done")
    model = cli.model(*[says("Done.")] * 7, wait, says("Went on."), name="waits")
    with cli.working("run", "Wait.", "-m", model, "-s", "cli:a", "--autonomy", "full") as work:
        work.until_type("ToolCallStarted")
        assert cli("compact", "cli:a", "--json").json["status"] == "asked"
        undone = cli("compact", "cli:a", "--undo")
        assert (undone.code, "brought back only while nobody drives" in undone.err) == (1, True)
        with cli.terminal("chat", "-s", "cli:a") as screen:
            screen.until(">")
            screen.type("/compact\r")
            screen.until("The open run shortens what the model sees")
            screen.type("/exit\r")
            screen.end()
        (cli.workspace / "go").touch()
        assert work.end().code == 0
    assert [each["type"] for each in events(cli)].count("ContextCompacted") == 1


@pytest.mark.parametrize("key", ["compaction.model", "reflection.model"])
def test_another_model_of_an_unknown_provider_is_refused_with_its_key(cli: Cli, key: str) -> None:
    cli.configure(f'{key} = "nope:x"\n')
    ended = cli("run", "Hello.", "-m", cli.model(says("Hello.")))
    assert (ended.code, f"{key} = 'nope:x': There is no provider 'nope'." in ended.err) == (2, True)


@pytest.mark.requirement("C9")
def test_undo_takes_back_a_compaction_that_an_open_run_has_not_made_yet(cli: Cli) -> None:
    worked(cli)
    model = cli.model(
        *[says("Done.")] * 7, calls("shell", command="kill -0 0"), says("Went on."), name="asks"
    )
    run = ("run", "Wait.", "-m", model, "-s", "cli:a", "--autonomy", "supervised")
    assert cli(*run).code == 5
    assert cli("compact", "cli:a", "--json").json["status"] == "asked"
    assert cli("compact", "cli:a", "--undo", "--json").json["status"] == "restored"
    assert cli("deny", cli("approvals", "--json").json["id"]).code == 0
    assert cli("resume", "cli:a").out == "Went on.\n"
    assert "ContextCompacted" not in [each["type"] for each in events(cli)]
    assert cli("replay", "cli:a").code == 0
