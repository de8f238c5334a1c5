"""Texts inside values: all of them are found, and masked wherever they are."""

from __future__ import annotations

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from holdfast.app import built_in_specs
from holdfast.errors import UsageError
from holdfast.protocol.allowed import EVERYWHERE
from holdfast.protocol.commands import Command, Principal, Send
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import Policy, Posture, Prompt, Walls, settings_with
from holdfast.protocol.tools import ToolSpec
from holdfast.redact import Redactor, make_redactor
from holdfast.redact.deep import in_every_text, texts_in, without_secrets
from holdfast.runtime.border import storable

SECRET = "known-value-" + "7f3a9c1e"
FACTS = ModelFacts("openai", "gpt-5", 1000, 0, 0)
COMMAND = Command(
    "c1",
    "01",
    Principal("ann", "cli", ("speak",)),
    Send("Go.", settings_with(FACTS, "/here", instructions="Be brief.", allow_tools=("read_*",))),
)

OMITTED = {
    EVERYWHERE,
    *Policy().offered,
    *(
        each.default
        for kind in (Command, ModelFacts, Policy, Posture, Principal, Prompt, ToolSpec, Walls)
        for each in fields(kind)
    ),
}
"""Texts that no text of a user can be: a value that has them need not say so."""


@pytest.fixture
def redact() -> Redactor:
    redact = make_redactor([SECRET])
    assert redact("ab " * 20_000)  # from now on the gates look
    return redact


@pytest.mark.parametrize("value", [COMMAND, built_in_specs(), {"a": ["b", {"c": ("d", 1)}]}, "e"])
def test_every_text_that_can_be_changed_is_found(value: object) -> None:
    changed: list[str] = []

    def note(text: str) -> str:
        changed.append(text)
        return text

    in_every_text(note, value)
    assert changed
    assert set(changed) - set(OMITTED) <= set(texts_in(value))


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("value", [COMMAND, built_in_specs()])
def test_a_value_without_a_secret_is_not_walked_through(value: object, redact: Redactor) -> None:
    assert without_secrets(redact, value) is value


@pytest.mark.requirement("A4")
def test_a_secret_is_masked_wherever_it_is(redact: Redactor) -> None:
    spec = built_in_specs()[0]
    schema = {**spec.parameters, "properties": {"path": {"enum": [SECRET]}}}
    masked = without_secrets(redact, (spec, replace(spec, parameters=schema)))
    assert masked[0] == spec
    assert SECRET not in str(masked)
    assert "[redacted:known]" in str(masked)


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("word", [SECRET, "é " + SECRET, SECRET + "\ud800", "\ud800"])
def test_a_command_is_stored_as_masking_each_of_its_texts_leaves_it(word: str, redact: Redactor) -> None:
    command = replace(COMMAND, body=Send(word))
    stored = storable(command, redact).body
    assert isinstance(stored, Send)
    assert stored.text == redact(word.encode("utf-8", "replace").decode())


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "settings",
    [settings_with(FACTS, f"/{SECRET}"), settings_with(FACTS, "/here", deny_tools=(SECRET,))],
)
def test_a_name_with_a_secret_is_refused(settings: Struct, redact: Redactor) -> None:
    with pytest.raises(UsageError, match="contains a secret"):
        storable(replace(COMMAND, body=Send("Go.", settings)), redact)  # type: ignore[arg-type]
