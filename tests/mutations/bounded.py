"""How a sandbox could let something run without a question that it does not bound."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_TESTS = "tests/policy/test_bounded.py"

BOUNDED = (
    Mutation(
        "what is unknown runs without a question and without a sandbox",
        "policy/rules.py",
        'facts.policy.sandboxed == "allow" and facts.policy.walls.backend != "unsafe"\n    return',
        'facts.policy.sandboxed == "allow"\n    return',
        _TESTS,
    ),
    Mutation(
        "a file that would be lost is bounded by a sandbox",
        "policy/rules.py",
        "map(risk_of, facts.commands)), facts.risk)",
        'map(risk_of, facts.commands)), "")',
        _TESTS,
    ),
    Mutation(
        "what a command does for certain is bounded by a sandbox",
        "policy/bounded.py",
        "(uses.asks and not uses.is_unknown)",
        "False",
        _TESTS,
    ),
    Mutation(
        "a text that is not understood may lose anything",
        "policy/bounded.py",
        'return _risk_unread(command) if command.unread else ""',
        'return ""',
        _TESTS,
    ),
    Mutation(
        "a text that is not understood may name files outside",
        "policy/bounded.py",
        "any(map(_LEADS_OUT.match, pieces_of(text)))",
        "False",
        _TESTS,
    ),
    Mutation(
        "a text that is not understood has a network under full",
        "policy/rules.py",
        "rule=SANDBOXED if is_unread else rule)",
        "rule=rule)",
        _TESTS,
    ),
    Mutation(
        "one unknown program makes everything beside it unknown",
        "policy/uses.py",
        "for each in every if each.asks} == {True},",
        "for each in every if each.asks} >= {True},",
        _TESTS,
    ),
    Mutation(
        "a program that is known only when it runs is bounded by a sandbox",
        "policy/programs.py",
        'return Uses(asks="Which program it is',
        'return unknown("Which program it is',
        _TESTS,
    ),
    Mutation(
        "an administrator cannot take back that unknown programs run",
        "config/keys.py",
        '        ("allow", "ask").index,\n',
        "",
        "tests/config/test_load.py "
        "tests/config/test_project.py::"
        "test_a_project_file_may_ask_again_where_the_user_lets_a_sandbox_answer",
    ),
)
