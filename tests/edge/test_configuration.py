"""What is missing or wrong before a run: exit 2, a sentence that names it and the way out, and nothing accepted."""

from __future__ import annotations

import pytest

from tests.edge.machine import Machine

KEY = {"OPENAI_API_KEY": "a-key-of-nobody"}


def refused(machine: Machine, *arguments: str, **environ: str) -> dict[str, str]:
    """What a refused command says; it made no session."""
    answer = machine.holdfast("run", "go", "--json", *arguments, **environ)
    assert answer.code == 2
    error = answer.json["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["message"] in answer.err
    assert not (machine.home / "holdfast.db").exists() or machine.holdfast("sessions", "--json").rows == []
    return dict(error)


@pytest.mark.requirement("L9", "C15")
@pytest.mark.parametrize(
    ("content", "line", "key", "range_"),
    [
        ("[limits]\nturns = 0", 2, "limits.turns", "from 1 to 10,000"),
        ("\n\n[limits]\nturns = 1_000_000", 4, "limits.turns", "from 1 to 10,000"),
        ('[limits]\nwall = "0s"', 2, "limits.wall", ""),
        ("[limits]\nidle = -1", 2, "limits.idle", ""),
        ("[limits]\ntruns = 5", 2, "limits.truns", "Did you mean"),
        ("[sandbox]\nmode = \"none\"", 2, "sandbox.mode", "unsafe"),
    ],
)  # fmt: skip
def test_a_bad_value_is_told_with_file_line_and_key(
    machine: Machine, content: str, line: int, key: str, range_: str
) -> None:
    file = machine.configure(content)
    error = refused(machine, "-m", machine.script([{"text": "never"}]))
    assert error["code"] == "config"
    assert error["message"].startswith(f"{file}:{line}: {key}")
    assert range_.lower() in error["message"].lower()


@pytest.mark.requirement("L9")
def test_all_problems_of_a_file_are_told_at_once_and_no_toml_with_its_line(machine: Machine) -> None:
    file = machine.configure("[limits]\nturns = 0\ncost_usd = -1\n[nonsense]\na = 1\n")
    lines = refused(machine)["message"].splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{file}:{number}" for number in (2, 3, 4)]
    machine.configure("[limits]\nturns = = 5\n")
    assert f"{file}:2" in refused(machine)["message"]


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a" + ".a" * 400_000 + " = 1\n", ":1: names a key of more than 100 segments"),
        ("[limits]\n x = { " + "'b' . " * 100_000 + "c = 1 }\n", ":2: names a key of more than 100 segments"),
        ('"\\""' + '."\\""' * 100_000 + " = 1\n", ":1: names a key of more than 100 segments"),
        ("a" + ".a" * 90 + " = 1\n", "there is no"),
        ("[limits]\nturns = " + "9" * 5_000 + "\n", "too long"),
    ],
)
def test_keys_and_numbers_without_end_are_told_like_others(machine: Machine, content: str, told: str) -> None:
    file = machine.configure(content)
    message = refused(machine)["message"]
    assert message.startswith(str(file))
    assert told in message
    assert len(message) < 2_000


@pytest.mark.requirement("L9")
def test_without_any_file_and_key_the_message_names_the_next_command(machine: Machine) -> None:
    error = refused(machine)
    assert "No model" in error["message"]
    assert "holdfast init" in error["hint"]
    error = refused(machine, "-m", "openai:gpt-5.5")
    assert "key" in error["message"]
    assert "OPENAI_API_KEY" in error["hint"]


@pytest.mark.requirement("L9", "C15")
def test_an_unknown_provider_is_never_another_one(machine: Machine) -> None:
    assert "'opnai'" in refused(machine, "-m", "opnai:gpt-5.5", **KEY)["message"]
    assert (
        "PROVIDER:MODEL"
        in refused(machine, "-m", "gpt-5.5", **KEY)["message"]
        + refused(machine, "-m", "gpt-5.5", **KEY)["hint"]
    )


@pytest.mark.requirement("L9")
def test_a_set_budget_and_a_model_of_unknown_price_exclude_each_other(machine: Machine) -> None:
    error = refused(machine, "-m", "openai:not-yet-born", "--budget", "1.00", **KEY)
    assert "price" in error["message"]
    assert '[catalog."openai:not-yet-born"]' in error["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-w", "no-such-folder"),
        ("--max-turns", "0"),
        ("--timeout", "soon"),
        ("--budget", "-1"),
        ("--autonomy", "total"),
        ("--posture", "slouching"),
        ("--system", "no-such-file"),
        ("-s", "no colon"),
        ("--no-such-flag",),
        ("--stream-json",),
    ],
)
@pytest.mark.requirement("L9")
def test_a_wrong_flag_is_refused(machine: Machine, arguments: tuple[str, ...]) -> None:
    refused(machine, "-m", machine.script([{"text": "never"}]), *arguments)


def test_a_session_that_is_not_there_is_a_usage_error(machine: Machine) -> None:
    for arguments in (("resume", "cli:none"), ("show", "cli:none"), ("resume", "last")):
        answer = machine.holdfast(*arguments, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (2, "not_found"), arguments


TOO_LONG = "a" * 300
PATHS = [
    ("run", "go", "-m", "MODEL", "-w", "PATH"),
    ("run", "go", "-m", "MODEL", "--attach", "PATH"),
    ("run", "go", "-m", "MODEL", "--system", "PATH"),
    ("run", "go", "-m", "MODEL", "--output-schema", "PATH"),
    ("run", "go", "-m", "script:PATH"),
    ("run", "go", "-m", "MODEL", "--home", "PATH"),
    ("sessions", "--home", "PATH"),
    ("doctor", "--home", "PATH"),
    ("init", "--home", "PATH"),
    ("trust", "PATH"),
    ("config", "show", "-w", "PATH"),
    ("import", "PATH"),
    ("replay", "last", "--with", "PATH"),
]


@pytest.mark.requirement("L9", "C15")
@pytest.mark.parametrize("named", ["~nobody-of-that-name/x", TOO_LONG], ids=["no user", "too long"])
@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_a_path_that_nobody_can_have_is_a_usage_error(
    machine: Machine, words: tuple[str, ...], named: str
) -> None:
    model = machine.script([{"text": "never"}])
    answer = machine.holdfast(*(each.replace("PATH", named).replace("MODEL", model) for each in words))
    assert answer.code == 2, answer.err
    assert named.partition("/")[0] in answer.err
