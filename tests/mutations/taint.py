"""Promises about what a session has read, and what it may send."""

from __future__ import annotations

from tests.mutations.bench import Mutation

TAINT = (
    Mutation(
        "a result that says nothing of itself is trusted",
        "protocol/tools.py",
        'default_factory=lambda: "untrusted"',
        'default_factory=lambda: "data"',
        "tests/core/test_who_and_what.py tests/core/test_taint.py",
    ),
    Mutation(
        "a later record becomes the mark of a flag",
        "protocol/flags.py",
        "    if is_private and private is None:",
        "    if is_private:",
        "tests/core/test_taint.py",
    ),
    Mutation(
        "an untrusted prompt sets no flag",
        "core/evolve_models.py",
        "prompt=prompted.after_built(event), taint=flags)",
        "prompt=prompted.after_built(event))",
        "tests/core/test_taint.py",
    ),
    Mutation(
        "an untrusted attachment sets no flag",
        "core/evolve_run.py",
        "        taint=flags_after(state.taint, state.seq, event),\n",
        "",
        "tests/core/test_taint.py",
    ),
    Mutation(
        "a branch and an imported session have what approvals of others cover",
        "core/evolve.py",
        "return replace(run, covered=()) if run is not None else None",
        "return run",
        "tests/core/test_taint.py",
    ),
    Mutation(
        "gates that judged by older flags count",
        "core/wanted.py",
        "state.labels, state.taint, run.covered",
        "run.covered",
        "tests/core/test_taint.py",
    ),
    Mutation(
        "the gates never learn the flags",
        "runtime/prepare.py",
        "            taint=state.taint,\n",
        "",
        "tests/scenarios/test_taint.py",
    ),
    Mutation(
        "the gates never learn what approvals cover",
        "runtime/prepare.py",
        "            covered=state.run.covered if state.run is not None else (),\n",
        "",
        "tests/scenarios/test_taint.py",
    ),
    Mutation(
        "a query is quiet after something private",
        "policy/taint.py",
        'if sending is None or (sending.what == "query" and taint.private is None):',
        'if sending is None or sending.what == "query":',
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "a GET may have a body",
        "policy/taint.py",
        '.upper() in _READ_METHODS and not values.get("body")',
        ".upper() in _READ_METHODS",
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "a foreign tool may call itself by the name of a reader",
        "policy/taint.py",
        '    if spec.source == "builtin" and spec.name in _ASKING:',
        "    if spec.name in _ASKING:",
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "a question that is a proof allows a command",
        "policy/taint.py",
        'each.rule == PROVED and each.verdict == "allow"',
        "each.rule == PROVED",
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "a yes to a call that another gate asks about too covers its host",
        "policy/taint.py",
        'covers = "" if any(each.verdict == "ask" for each in decisions) else sending.covers',
        "covers = sending.covers",
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "another port is the same host",
        "policy/taint.py",
        'yield target.host if target.port in _WEB_PORTS else f"{target.host}:{target.port}"',
        "yield target.host",
        "tests/policy/test_taint.py",
    ),
    Mutation(
        "a failed edit shows nothing private",
        "tools/dispatcher.py",
        '(spec.effect != "write" or result.status != "ok")',
        'spec.effect != "write"',
        "tests/tools/test_taint.py",
    ),
    Mutation(
        "an untrusted workspace is data",
        "tools/dispatcher.py",
        "if context.policy.is_workspace_untrusted and is_private",
        "if not is_private and is_private",
        "tests/tools/test_taint.py",
    ),
    Mutation(
        "the model is not told that a text is untrusted",
        "context/transcript.py",
        "UNTRUSTED.format(origin=origin) + result.text if",
        "result.text if",
        "tests/core/test_taint.py",
    ),
)
