"""Promises about structured answers, and about what comes with a message."""

from __future__ import annotations

from tests.mutations.bench import Mutation

ANSWERS = (
    Mutation(
        "an answer that does not match ends the run",
        "core/rules.py",
        "    if answer_problem(run, settings) or is_asked_again(draft) or is_going_on(draft):\n        return\n",
        "",
        "tests/core/test_repairs.py",
    ),
    Mutation(
        "a wrong answer goes back a third time",
        "core/rules.py",
        "MAX_REPAIRS = 2",
        "MAX_REPAIRS = 3",
        "tests/core/test_repairs.py",
    ),
    Mutation(
        "the verdict of another schema counts",
        "core/answers.py",
        "run.verdict is None or run.verdict.schema != name_of(settings.output)",
        "run.verdict is None",
        "tests/core/test_repairs.py",
    ),
    Mutation(
        "a schema with a secret is stored",
        "runtime/border.py",
        "if redact.find(settings.output.schema):",
        'if redact.find(""):',
        "tests/cli/test_output_schema.py",
    ),
    Mutation(
        "an attached text is stored as it is",
        "cli/attachments.py",
        "content = clean(app.redact(content.decode())).encode()",
        "content = clean(content.decode()).encode()",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a link to a secret file is attached",
        "cli/attachments.py",
        "(str(path.absolute()), real))",
        "(str(path.absolute()),))",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a file outside the workspace can be mentioned",
        "cli/attachments.py",
        "if path and is_inside(root, path) and os.path.isfile(path):",
        "if path and os.path.isfile(path):",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a picture counts by its bytes",
        "context/conversation.py",
        "return len(content) - quoted.weight_bytes if quoted.weight_bytes else 0",
        "return 0",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a task that cannot fit is accepted",
        "runtime/fitting.py",
        "if needed > room:",
        "if needed > room * 100:",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a file counts by its size where its weight decides",
        "runtime/fitting.py",
        "each.weight_bytes or each.size_bytes",
        "each.size_bytes",
        "tests/cli/test_attachments.py",
    ),
    Mutation(
        "a session forgets how far its attachments may be trusted",
        "core/evolve_run.py",
        "spoken = labelled(spoken, Label(each.origin, each.trust))",
        "pass",
        "tests/core/test_who_and_what.py",
    ),
    Mutation(
        "the same words with another file are taken for the same task",
        "runtime/controller.py",
        "(one.body.text, one.body.attachments, one.principal)",
        "(one.body.text, other.body.attachments, one.principal)",
        "tests/library/test_agent.py",
    ),
    Mutation(
        "the blob of a command that waits is deleted with another session",
        "storage/deletion.py",
        "for blob in sorted(own - others)",
        "for blob in sorted(own)",
        "tests/storage/test_conformance.py",
    ),
)
