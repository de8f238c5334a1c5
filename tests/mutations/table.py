"""Lines that carry a promise, and how each could be broken. A feature that makes a promise adds a row.

The first ten are those that were asked for by name. What comes in and who may do what stands in `borders`.
"""

from __future__ import annotations

from tests.mutations.bench import Mutation
from tests.mutations.borders import ENDINGS, PERMISSION, SECRETS

NAMED = (
    Mutation(
        "the approval digest is not compared",
        "runtime/prepare.py",
        "return bound(call.name, settings.tools.workspace, admission).sha256 == permission.sha256",
        "return True",
        "tests/scenarios/test_what_was_approved.py",
    ),
    Mutation(
        "the usage of a failed call is dropped",
        "core/model_calls.py",
        "retry_at_ms=retry_at,\n            usage=charge.usage,",
        "retry_at_ms=retry_at,",
        "tests/core/test_retry.py::test_what_a_provider_charged_for_a_failed_attempt_is_spent",
    ),
    Mutation(
        "signed reasoning with a secret is kept",
        "runtime/runner.py",
        "return part if is_safe else None",
        "return part",
        "tests/library/test_secrets.py::test_a_signed_thought_with_a_secret_is_dropped_and_one_without_is_kept",
    ),
    Mutation(
        "the detail of a model's failure is left unredacted",
        "runtime/runner.py",
        "detail=redact(failure.detail))",
        "detail=failure.detail)",
        "tests/library/test_secrets.py::test_a_failure_of_a_model_is_stored_masked",
    ),
    Mutation(
        "the stream redactor has no context",
        "redact/stream.py",
        "raw, begin = self._context + self._pending, len(self._context)",
        "raw, begin = self._pending, 0",
        "tests/redact/test_redact.py::test_a_stream_shows_just_what_the_whole_text_would",
    ),
    Mutation(
        "a commit is not synced to the disk",
        "storage/home.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        "tests/storage/test_durability.py",
    ),
    Mutation(
        "the folder of a blob is not synced",
        "storage/blobs.py",
        "        sync_folder(path.parent)\n",
        "",
        "tests/storage/test_durability.py",
    ),
    Mutation(
        "the lease is not checked before a program is started",
        "sandbox/process.py",
        "until_ms = launch.check()",
        "until_ms = 1 << 62",
        "tests/sandbox/test_leases.py",
    ),
    Mutation(
        "an attempt is cancelled twice",
        "runtime/driver.py",
        "if not task.cancelling():",
        "if not task.done():",
        "tests/scenarios/test_cancelling.py",
    ),
    Mutation(
        "nobody answers a ring of the doorbell",
        "runtime/controller.py",
        "    def _on_ring(self, session: str) -> None:\n        driver = self._drivers.get(session)\n"
        "        if driver is not None:",
        "    def _on_ring(self, session: str) -> None:\n        driver = self._drivers.get(session)\n"
        "        if driver is None:",
        "tests/scenarios/test_doorbell.py",
    ),
)

_LEASES = (
    Mutation(
        "a guard starts a program whose lease is over",
        "sandbox/keeper.py",
        '>= request["until_ms"]:',
        ">= 1 << 62:",
        "tests/sandbox/test_leases.py",
    ),
    Mutation(
        "the lease is not checked before a file takes its name",
        "tools/writing.py",
        "            os.fsync(fd)\n            check()\n",
        "            os.fsync(fd)\n",
        "tests/tools/test_files.py tests/lease/test_sleepers.py",
    ),
    Mutation(
        "the lease is not checked before a request is written",
        "providers/body.py",
        "            self._check()\n",
        "            pass\n",
        "tests/providers/test_network.py tests/lease/test_sleepers.py",
    ),
    Mutation(
        "the lease is not checked before a coroutine of the program is called",
        "tools/function.py",
        "            context.check()\n            try:",
        "            try:",
        "tests/tools/test_function_tools.py::test_a_function_whose_lease_is_over_is_not_called",
    ),
    Mutation(
        "the lease is not checked before a function of the program is called",
        "tools/function.py",
        "            context.check()\n            return text_of(call(**keywords))",
        "            return text_of(call(**keywords))",
        "tests/tools/test_function_tools.py::test_a_function_whose_lease_is_over_is_not_called",
    ),
    Mutation(
        "what was committed under a lapsed lease is started before the lease is renewed",
        "runtime/driver.py",
        "if self._hold.is_lapsed and await renew(",
        "if False and await renew(",
        "tests/scenarios/test_fencing.py tests/lease/test_sleepers.py",
    ),
    Mutation(
        "a lease is renewed when it is over, and not before",
        "runtime/heartbeat.py",
        "now_ms > hold.until_ms - LEASE_MS + RENEW_MS",
        "now_ms > hold.until_ms",
        "tests/scenarios/test_fencing.py tests/scenarios/test_idle.py",
    ),
    Mutation(
        "nobody is told that a lease is lost",
        "runtime/heartbeat.py",
        "            hold.on_lost(Fenced())",
        "            pass",
        "tests/scenarios/test_fencing.py",
    ),
    Mutation(
        "a renewed lease is taken for one that lasts from now on",
        "runtime/heartbeat.py",
        "    until_ms = clock.uptime_ms() + LEASE_MS\n    taken",
        "    until_ms = clock.uptime_ms() + 2 * LEASE_MS\n    taken",
        "tests/scenarios/test_fencing.py tests/scenarios/test_idle.py",
    ),
    Mutation(
        "a commit of an old epoch is taken",
        "storage/writes.py",
        "session = number AND epoch = ?9 AND holder IS NOT NULL)",
        "session = number AND ?9 = ?9 AND holder IS NOT NULL)",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "a commit behind another one is taken",
        "storage/writes.py",
        "WHERE id = ?8 AND seq = ?1 AND EXISTS (",
        "WHERE id = ?8 AND EXISTS (",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "a lease is taken over from another one than the dead one",
        "storage/writes.py",
        "is_dead = over is not None and over.epoch == epoch",
        "is_dead = over is not None",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "a lease is given back while a command waits",
        "storage/writes.py",
        '"SELECT 1 FROM inbox WHERE session = ?1 AND body IS NOT NULL) RETURNING 1"',
        '"SELECT 1 FROM inbox WHERE session = ?1 AND body IS NULL AND 0) RETURNING 1"',
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "who takes over does not end what a dead driver left running",
        "runtime/driver.py",
        "        await end_orphans(self._parts.tools, self.state)\n",
        "",
        "tests/lease/test_sleepers.py::test_who_takes_over_from_a_frozen_driver_ends_its_command_before_it_goes_on",
    ),
    Mutation(
        "a visitor says that a run is over while its tool still runs",
        "runtime/controller.py",
        "        await end_orphans(self._parts.tools, journal.state)\n",
        "",
        "tests/lease/test_sleepers.py::test_a_stop_while_its_driver_is_frozen_ends_the_command_before_it_says_so",
    ),
    Mutation(
        "the model is not told of a rival that may still act",
        "core/decide.py",
        "notes = _rival_notes(draft.state) if cause.is_contested else []",
        "notes: list[e.NoteAdded] = []",
        "tests/core/test_takeover.py",
    ),
    Mutation(
        "no holder counts as one that may still live",
        "runtime/controller.py",
        "is_contested = held is not None and not is_left and not is_dead(held.holder)",
        "is_contested = False",
        "tests/scenarios/test_fencing.py tests/lease/test_sleepers.py",
    ),
)

_DISK = (
    Mutation(
        "the content of a blob is not synced",
        "storage/blobs.py",
        "            os.fsync(file.fileno())\n",
        "",
        "tests/storage/test_durability.py",
    ),
    Mutation(
        "a new folder of blobs is not synced",
        "storage/blobs.py",
        "    sync_folder(folder.parent)  #",
        "    pass  #",
        "tests/storage/test_durability.py",
    ),
    Mutation(
        "the mark of a home is not synced",
        "storage/home.py",
        "        os.fsync(file.fileno())\n    sync_folder(home)",
        "    sync_folder(home)",
        "tests/storage/test_durability.py",
    ),
    Mutation(
        "the content of a file is not synced before it takes its name",
        "tools/writing.py",
        "            os.fsync(fd)\n",
        "",
        "tests/tools/test_files.py",
    ),
    Mutation(
        "the folder of a file is not synced after it took its name",
        "tools/writing.py",
        "        os.fsync(folder)\n",
        "",
        "tests/tools/test_files.py",
    ),
    Mutation(
        "a database that was replaced is not noticed",
        "storage/writer.py",
        "place_of(self._path) != self._place",
        "self._place is None",
        "tests/storage/test_home.py",
    ),
    Mutation(
        "an emptied database is taken for a new one",
        "storage/home.py",
        "if (facts is None or not facts.st_size) and any(",
        "if facts is None and any(",
        "tests/storage/test_home.py",
    ),
    Mutation(
        "a record that was changed is read",
        "protocol/codec.py",
        "return stored.link == link_after(previous_link, stored.seq, stored)",
        "return True",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "an erased record need not have been there",
        "protocol/codec.py",
        "return digest_of(self.body) if self.body else self.digest",
        "return digest_of(self.body)",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "fsck does not compare the list of approvals with the journal",
        "storage/derived.py",
        "if kept != seqs and (examined.is_whole or kept[: len(seqs)] != seqs):",
        "if not kept and examined.is_whole:",
        "tests/storage/test_damage.py",
    ),
)

_MONEY = (
    Mutation(
        "the output of a call is not reserved",
        "core/budget.py",
        "Grant(expected, cap, worst + cap, _price(model, worst, cap))",
        "Grant(expected, cap, worst, _price(model, worst, 0))",
        "tests/core/test_budget.py",
    ),
    Mutation(
        "bytes that nobody counted are taken for two to a token",
        "core/measure.py",
        "    most = size_bytes\n",
        "    most = size_bytes // 2\n",
        "tests/core/test_budget.py",
    ),
    Mutation(
        "tokens that a crash left held are free again",
        "core/budget.py",
        "run.totals.usage.total_tokens - run.totals.held_tokens",
        "run.totals.usage.total_tokens",
        "tests/core/test_budget.py tests/core/test_commands.py",
    ),
    Mutation(
        "money that a crash left held is free again",
        "core/budget.py",
        "run.totals.cost_microusd - run.totals.held_microusd",
        "run.totals.cost_microusd",
        "tests/core/test_budget.py tests/core/test_commands.py",
    ),
    Mutation(
        "an abandoned call holds nothing",
        "core/evolve.py",
        "held_microusd=run.totals.held_microusd + call.reserved_microusd",
        "held_microusd=run.totals.held_microusd",
        "tests/core/test_budget.py tests/core/test_commands.py",
    ),
    Mutation(
        "a broken stream is settled above its reservation",
        "core/budget.py",
        "written = min(_tokens(broken.received_bytes), call.output_cap_tokens)",
        "written = _tokens(broken.received_bytes)",
        "tests/core/test_budget.py",
    ),
    Mutation(
        "a part of a usage that is missing counts as nothing",
        "core/budget.py",
        "max(usage.input_tokens, call.expected_tokens)",
        "usage.input_tokens",
        "tests/core/test_budget.py",
    ),
    Mutation(
        "a call that exceeded its limit does not end the run",
        "core/budget.py",
        "return cost_left(run, limits) < 0 or tokens_left(run, limits) < 0",
        "return False",
        "tests/core/test_budget.py",
    ),
    Mutation(
        "a broken answer is charged nothing by its adapter",
        "providers/native.py",
        "return ModelFailure(failure, reported.usage, reported.estimated, received_bytes)",
        "return ModelFailure(failure)",
        "tests/providers/test_network.py",
    ),
    Mutation(
        "time in which a run rests counts as driven",
        "core/evolve.py",
        " or state.run is None or phase(state) in RESTING:",
        " or state.run is None:",
        "tests/core/test_endings.py tests/core/test_invariants.py",
    ),
    Mutation(
        "time of another driver counts as driven",
        "core/evolve.py",
        "if passed_ms <= 0 or record.epoch != state.epoch or",
        "if passed_ms <= 0 or",
        "tests/core/test_endings.py tests/core/test_commands.py tests/core/test_invariants.py",
    ),
)

_BOUNDS = (
    Mutation(
        "one call more than the cap is taken",
        "core/model_calls.py",
        "MAX_CALLS = 128",
        "MAX_CALLS = 129",
        "tests/core/test_tool_calls.py tests/cli/test_many_calls.py",
    ),
    Mutation(
        "one call less than the cap is taken",
        "core/model_calls.py",
        "            if count > MAX_CALLS:\n                continue",
        "            if count >= MAX_CALLS:\n                continue",
        "tests/core/test_tool_calls.py",
    ),
    Mutation(
        "a call that kills its process is run a fourth time",
        "core/decide.py",
        "MAX_INTERRUPTIONS = 3",
        "MAX_INTERRUPTIONS = 4",
        "tests/core/test_tool_calls.py::test_a_call_that_was_interrupted_three_times_is_given_up",
    ),
    Mutation(
        "an interrupted call of unknown effect is run again",
        "core/evolve.py",
        'and attempt.on_interrupt != "unknown"',
        "and attempt.on_interrupt",
        "tests/core/test_tool_calls.py",
    ),
    Mutation(
        "a wait that a server names has no bound",
        "providers/errors.py",
        "min(max(wait_s, 0.0), LONGEST_WAIT_S)",
        "max(wait_s, 0.0)",
        "tests/providers/test_refusals.py",
    ),
    Mutation(
        "a wait that a failure names has no bound",
        "core/retry.py",
        "min(max(0.0, failure.retry_after_s or 0.0), LONGEST_WAIT_S)",
        "max(0.0, failure.retry_after_s or 0.0)",
        "tests/core/test_retry.py",
    ),
    Mutation(
        "a response has no bound",
        "providers/http.py",
        "        if size_bytes > limit:",
        "        if size_bytes < 0:",
        "tests/providers/test_network.py",
    ),
    Mutation(
        "comments alone keep a connection from being silent",
        "providers/http.py",
        "if heard is not Heard.NOTHING:",
        "if chunk:",
        "tests/providers/test_network.py",
    ),
    Mutation(
        "an inbox takes one command more than it holds",
        "storage/writes.py",
        "    if waiting >= capacity:",
        "    if waiting > capacity:",
        "tests/storage/test_conformance.py",
    ),
    Mutation(
        "a count of tokens has no bound",
        "providers/usage.py",
        "if not 0 <= number < TOKENS_MAX:",
        "if not 0 <= number < 1e300:",
        "tests/providers/test_readers.py",
    ),
    Mutation(
        "a schema may cost as much as it likes",
        "tools/schema_cost.py",
        "MAX_STEPS = 5_000_000",
        "MAX_STEPS = 5_000_000_000",
        "tests/tools/test_schema_cost.py",
    ),
)


MUTATIONS = (*NAMED, *_LEASES, *_DISK, *_MONEY, *_BOUNDS, *SECRETS, *PERMISSION, *ENDINGS)
