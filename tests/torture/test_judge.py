"""The judge finds nothing wrong with a session that nobody tortured, and sees every forgery of it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.testing.model_replies import Rendered, Reply
from holdfast.testing.model_server import Received
from tests.torture import effects as by
from tests.torture.calm import played_once
from tests.torture.evidence import (
    DATABASE,
    EFFECTS,
    LEDGER,
    OPEN_FILES,
    Call,
    Evidence,
    Ran,
    Served,
    bodies,
    journal,
    refs_of,
)
from tests.torture.judge import alive, codes, descriptors, judge, messages
from tests.torture.rounds import (
    SESSION,
    Meddler,
    Record,
    World,
    calm_round,
    clear_up,
    gather,
    own_view,
    work,
)
from tests.torture.scene import SceneServer

CALM = 194
"""A seed whose session writes files, edits them and runs commands, asks nothing and meets no failure."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A session that nobody tortured."""

    def play(folder: Path) -> Evidence:
        gathered = gather(calm_round, CALM, folder)
        assert [*judge(gathered.evidence), *own_view(gathered)] == []
        return gathered.evidence

    return played_once(tmp_path_factory, "calm", play)


@pytest.fixture
def forged(calm: Evidence, tmp_path: Path) -> Evidence:
    """A copy of it, to be forged."""
    folder = shutil.copytree(calm.folder, tmp_path / "round")
    return replace(calm, folder=folder, home=folder / "home", workspace=folder / "workspace")


def kinds(evidence: Evidence) -> set[str]:
    """The kinds of faults that the judge finds."""
    return {fault.kind for fault in judge(evidence)}


def done(evidence: Evidence, name: str) -> Call:
    """A call of that tool which is done."""
    ids = {ref: call_id for call_id, ref in refs_of(journal(evidence.home)).items()}
    ok = {body["call_id"] for body in bodies(journal(evidence.home), "ToolCallFinished")}
    return next(
        call
        for each in evidence.served
        for call in each.calls
        if call.name == name and ids.get(call.ref) in ok
    )


def change(evidence: Evidence, statement: str, *values: object) -> None:
    """Change the database, and nothing that would tell of it."""
    with closing(sqlite3.connect(evidence.home / DATABASE)) as connection, connection:
        assert connection.execute(statement, values).rowcount


# --- effects ------------------------------------------------------------------------------------


def test_an_effect_that_is_said_to_be_done_and_is_not_there_is_lost(forged: Evidence) -> None:
    log, mark = forged.workspace / EFFECTS, done(forged, "shell").mark
    log.write_text(
        "".join(line for line in log.read_text().splitlines(True) if not line.startswith(f"{mark} "))
    )
    assert kinds(forged) == {"lost"}


def test_a_file_that_is_said_to_be_written_and_is_not_there_is_lost(forged: Evidence) -> None:
    (forged.workspace / done(forged, "write_file").path).unlink()
    assert "lost" in kinds(forged)


def test_an_effect_that_happened_twice_is_doubled(forged: Evidence) -> None:
    with (forged.workspace / EFFECTS).open("a") as log:
        log.write(f"{done(forged, 'shell').mark} begun\n")
    assert kinds(forged) == {"doubled"}


def test_a_file_that_was_replaced_twice_by_one_call_is_doubled(forged: Evidence) -> None:
    path = done(forged, "write_file").path
    renames = {**forged.renames, path: forged.renames[path] + 1}
    assert kinds(replace(forged, renames=renames)) == {"doubled"}


def test_an_edit_that_was_made_twice_is_doubled(forged: Evidence) -> None:
    ledger = forged.workspace / LEDGER
    ledger.write_text(f"- edited by {done(forged, 'edit_file').mark}\n" + ledger.read_text())
    assert kinds(forged) == {"doubled"}


def test_an_effect_of_a_call_that_nobody_recorded_is_unreported(forged: Evidence) -> None:
    unheard = Served(b"", "never", (Call("call_99_0", "r99c0", "shell"),))
    with (forged.workspace / EFFECTS).open("a") as log:
        log.write("r99c0 begun\n")
    assert ("unreported", "r99c0 ( shell) begun, and was never started") in by.effects(
        journal(forged.home), replace(forged, served=[*forged.served, unheard])
    )
    assert kinds(forged) == {"unreported"}


# --- the journal --------------------------------------------------------------------------------


def test_a_record_that_is_gone_is_lost(forged: Evidence) -> None:
    change(forged, "DELETE FROM records WHERE seq = (SELECT max(seq) FROM records)")
    assert "lost" in kinds(forged)


def test_a_record_that_was_changed_is_damaged(forged: Evidence) -> None:
    change(forged, "UPDATE records SET at_ms = at_ms + 1 WHERE seq = 3")
    assert kinds(forged) == {"damaged"}


def test_a_record_that_was_told_otherwise_is_lost(forged: Evidence) -> None:
    told = {"seq": 3, "type": "MessageReceived", "text": "another", "sender": "x", "scopes": []}
    assert "lost" in kinds(replace(forged, ran=[*forged.ran, Ran(("sessions",), 0, (told,))]))


def test_a_message_that_was_accepted_and_did_not_come_is_lost(forged: Evidence) -> None:
    assert kinds(replace(forged, ran=[*forged.ran, Ran(("resume", "s"), 0, says="unheard")])) == {"lost"}


def test_a_command_that_nobody_took_is_lost(forged: Evidence) -> None:
    change(forged, "UPDATE inbox SET body = x'7b7d' WHERE arrival = 1")
    assert kinds(forged) == {"lost"}


def test_a_call_without_an_outcome_is_lost(forged: Evidence) -> None:
    rows = [row for row in journal(forged.home) if row["type"] != "ToolCallFinished"]
    assert {fault.kind for fault in by.calls(rows)} == {"lost"}


def test_a_call_that_is_started_again_after_its_end_is_doubled(forged: Evidence) -> None:
    rows = journal(forged.home)
    again = next(row for row in reversed(rows) if row["type"] == "ToolCallStarted")
    assert {fault.kind for fault in by.calls([*rows, again])} == {"doubled"}


# --- requests and money -------------------------------------------------------------------------


def test_a_request_that_was_not_recorded_is_unreported(forged: Evidence) -> None:
    body = forged.served[-1].body.replace(b"All", b"all")
    extra = replace(forged.served[-1], body=body + b" ", ref="other", cost_microusd=0)
    assert "unreported" in kinds(replace(forged, served=[*forged.served, extra]))


def test_a_request_that_was_sent_twice_is_doubled(forged: Evidence) -> None:
    extra = replace(forged.served[-1], ref="other", calls=(), cost_microusd=0)
    assert kinds(replace(forged, served=[*forged.served, extra])) == {"doubled"}


@pytest.mark.parametrize("forge", ["drop", "twice"])
def test_a_result_that_is_missing_or_there_twice_in_a_request_is_seen(forged: Evidence, forge: str) -> None:
    last = forged.served[-1]
    start = last.body.index(b'{"role":"tool"')
    end = last.body.index(b'"}', start) + 2
    result = last.body[start:end]
    new = b'{"role":"user","content":"x"}' if forge == "drop" else result + b"," + result
    body = last.body[:start] + new + last.body[end:]
    found = by.conversation(journal(forged.home), [replace(last, body=body)])
    assert {fault.kind for fault in found} == {"lost" if forge == "drop" else "doubled"}


def test_a_prefix_of_other_bytes_is_seen(forged: Evidence) -> None:
    first = replace(forged.served[0], body=forged.served[0].body.replace(b"please", b"now"))
    assert {f.kind for f in by.conversation(journal(forged.home), [first, *forged.served[1:]])} == {"lost"}


def test_a_request_may_begin_otherwise_where_a_record_says_that_the_view_was_cut(forged: Evidence) -> None:
    rows = journal(forged.home)
    first = replace(forged.served[0], body=b'{"messages":[{"role":"user","content":"x"}]}')
    served = [first, *forged.served[1:]]
    cut = [at for at, row in enumerate(rows) if row["type"] == "ModelCallStarted"][1]
    rows.insert(cut, {"type": "ContextCompacted", "body": {}})
    assert list(by.conversation(rows, served)) == []
    again = replace(served[-1], body=served[-1].body.replace(b"please", b"now"))
    assert {fault.kind for fault in by.conversation(rows, [*served, again])} == {"lost"}


def test_money_that_the_server_charges_and_nobody_counted_is_unreported(forged: Evidence) -> None:
    dearer = replace(forged.served[0], cost_microusd=forged.served[0].cost_microusd + 1)
    assert kinds(replace(forged, served=[dearer, *forged.served[1:]])) == {"unreported"}


class Silent(SceneServer):
    """It has its second answer ready, and never sends it."""

    was_asked = threading.Event()

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        reply, rendered = super().answer(request)
        if len(self.served) == 2:
            reply = msgspec.structs.replace(reply, delay_s=3600)
            self.was_asked.set()
        return reply, rendered


def stopped_while_it_waits(world: World) -> None:
    """Somebody stops the run when its second request has come to the server."""
    stop = Meddler(world, ("stop", SESSION), 2)

    meant: list[Record] = []

    def on_record(row: Record) -> None:
        if row["type"] == "ModelCallStarted":
            meant.append(row)
            assert len(meant) != 2 or Silent.was_asked.wait(60)
            stop.on_record(row)

    work(world, iter(()), on_record)
    stop.join()


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    """A session with a call that was cut before anything of its answer came."""
    folder = tmp_path_factory.mktemp("cut") / "round"
    gathered = gather(stopped_while_it_waits, CALM, folder, Silent)
    assert [*judge(gathered.evidence), *own_view(gathered)] == []
    yield gathered.evidence
    clear_up(folder)


def test_an_answer_that_never_came_is_reported_by_an_estimate_of_its_call(cut: Evidence) -> None:
    (body,) = bodies(journal(cut.home), "ModelCallCut")
    assert (body["text"], body["estimated"]) == ("", ["input", "output"])
    assert by.never_came(journal(cut.home), cut.served) >= cut.served[1].output_microusd * 0.9 > 0


@pytest.mark.parametrize(
    "forge",
    [
        {"estimated": ["input"]},
        {"cost_microusd": 0},
        {"text": "I work. " * 5},
    ],
    ids=str,
)
def test_a_call_that_was_cut_and_is_not_charged_as_it_should_be_is_seen(
    cut: Evidence, forge: dict[str, Any]
) -> None:
    rows = journal(cut.home)
    (body,) = bodies(rows, "ModelCallCut")
    body.update(forge)
    assert {fault.kind for fault in by.money(rows, cut.served)} == {"unreported"}


def test_an_answer_that_came_is_not_taken_for_one_that_never_came(forged: Evidence) -> None:
    """Its call is said to have been cut; but the next request holds what it asks for."""
    rows = journal(forged.home)
    gone = next(row for row in rows if row["type"] == "Responded")
    gone["type"] = "ModelCallCut"
    estimate = {
        "text": "",
        "estimated": ["input", "output"],
        "cost_microusd": gone["body"]["usage"]["input_tokens"],
    }
    gone["body"] |= estimate
    assert {fault.kind for fault in by.money(rows, forged.served)} == {"unreported"}


def test_more_money_than_a_run_may_spend_is_seen(forged: Evidence) -> None:
    rows = journal(forged.home)
    for body in bodies(rows, "SettingsStored"):
        for group in body["groups"].values():
            group["cost_microusd"] = 1_000
    assert "lost" in {fault.kind for fault in by.money(rows, ())}


def test_a_model_that_is_not_told_of_a_call_whose_outcome_is_unknown_is_seen(forged: Evidence) -> None:
    rows = journal(forged.home)
    gone = next(row for row in rows if row["type"] == "ToolCallFinished")
    gone["type"] = "ToolCallAbandoned"
    assert {fault.kind for fault in by.conversation(rows, forged.served)} == {"unreported"}


@pytest.mark.parametrize(("note", "kinds"), [("Hm.", set()), ("Oh.", {"lost"})])
def test_a_message_that_answers_a_question_came(note: str, kinds: set[str]) -> None:
    body = {"approval_id": "a-1", "decision": "answer", "note": note}
    found = messages([{"type": "ApprovalResolved", "body": body}], [Ran(("run", "Hm."), 0, says="Hm.")])
    assert {fault.kind for fault in found} == kinds


# --- codes and what is left ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ran", "kind"),
    [
        (Ran(("approve", "x"), 9), "code"),
        (Ran(("resume", "x"), 9), "code"),
        (Ran(("resume", "x"), -9, hung=True), "hang"),
        (Ran(("resume", "x"), 3, ({"seq": 1, "type": "SessionOpened"},)), "code"),
    ],
)
def test_a_wrong_code_and_a_hang_are_seen(forged: Evidence, ran: Ran, kind: str) -> None:
    assert {fault.kind for fault in codes(journal(forged.home), [ran], "")} == {kind}


@pytest.mark.parametrize(("is_frozen", "kinds"), [(True, set()), (False, {"code"})])
def test_only_beside_a_process_that_sleeps_a_command_may_say_that_the_database_is_locked(
    forged: Evidence, is_frozen: bool, kinds: set[str]
) -> None:
    said = f"holdfast: another process keeps {forged.home}/holdfast.db locked"
    for ran in (Ran(("resume", "x"), 9), Ran(("approve", "x"), 9)):
        found = codes(journal(forged.home), [ran], said, is_frozen=is_frozen)
        assert {fault.kind for fault in found} == kinds
        assert {fault.kind for fault in codes(journal(forged.home), [ran], "", is_frozen=is_frozen)} == {
            "code"
        }


def test_a_bug_that_is_told_is_seen(forged: Evidence) -> None:
    assert kinds(replace(forged, said="Traceback (most recent call last):\n...")) == {"code"}


def _socket(evidence: Evidence) -> None:
    (evidence.home / "run" / "1-a").touch()


def _half_a_file(evidence: Evidence) -> None:
    (evidence.workspace / "made" / ".holdfast-0.tmp").touch()


def _open_file(evidence: Evidence) -> None:
    (evidence.workspace / OPEN_FILES).write_text(f"3 -> {evidence.home}/holdfast.db\n")


@pytest.mark.parametrize("leave", [_socket, _half_a_file, _open_file])
def test_what_is_left_is_seen(forged: Evidence, leave: Callable[[Evidence], None]) -> None:
    leave(forged)
    assert "left" in kinds(forged)


@pytest.mark.parametrize("words", [("keeper_child.py", "4194305"), ("cat", "FOLDER/a"), ("SESSION:t1.c1",)])
def test_a_process_that_is_left_is_seen(forged: Evidence, words: Sequence[str]) -> None:
    session = journal(forged.home)[0]["session"]
    meant = [word.replace("FOLDER", str(forged.folder)).replace("SESSION", session) for word in words]
    command = [sys.executable, "-c", "input()", *meant]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as left:
        assert [pid for pid, _ in alive(str(forged.folder), session, {4194305})] == [left.pid]


def test_files_that_are_never_closed_are_seen() -> None:
    assert {fault.kind for fault in descriptors([(1, 10 + 4 * at) for at in range(6)])} == {"left"}
