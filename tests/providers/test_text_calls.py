"""Calls that a model wrote into its text: what counts as one, what does not, and what reading costs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol.text_formats import AUTO, TEXT_FORMATS
from holdfast.providers.text_calls import MAX_REJECTED, TextReader, read_text
from holdfast.providers.text_formats import AFTER_THOUGHTS, ECHOES, THOUGHTS, form_of, formats
from holdfast.providers.text_types import fitted
from tests.growth import grows_in_line
from tests.seeds import many

pytestmark = pytest.mark.requirement("S3")

CALL = '<tool_call>{"name": "look", "arguments": {"at": "a.py"}}</tool_call>'

WRITTEN = {
    "hermes": CALL,
    "hermes, two in one": '<tool_call>{"name":"look","arguments":{"at":"a.py"}}\n{"name":"stop"}</tool_call>',
    "hermes, fenced inside": '<tool_call>\n```json\n{"name":"look","arguments":{"at":"a.py"}}\n```\n</tool_call>',
    "toolcall": '<toolcall>{"name": "look", "parameters": {"at": "a.py"}}</tool_call>',
    "elements": "<tool_call><look><at>a.py</at></look></tool_call>",
    "element with JSON": '<tool_call><look>{"at": "a.py"}</look></tool_call>',
    "GLM keys": "<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
    "GLM short": "<tool_call>look>a.py</tool_call>",
    "GLM lines": "<tool_call>look>\nat: a.py\n</tool_call>",
    "attributes": '<tool_call>look at="a.py"/>',
    "like Python": '<tool_call>look(at="a.py")</tool_call>',
    "MiniMax": '<minimax:tool_call><invoke name="look"><parameter name="at">a.py</parameter></invoke>'
    "</minimax:tool_call>",
    "Anthropic": '<function_calls><invoke name="look"><parameter name="at">a.py</parameter></invoke>'
    "</function_calls>",
    "Qwen": "<tool_call>\n<function=look>\n<parameter=at>\na.py\n</parameter>\n</function>\n</tool_call>",
    "fence": '```tool_call\n{"name": "look", "arguments": {"at": "a.py"}}\n```',
    "Grok": '```tool look\n{"at": "a.py"}\n```',
    "Perl": '[TOOL_CALL]{tool => "look", args => {--at "a.py"}}[/TOOL_CALL]',
    "FunctionCall": "<FunctionCall>look<code>at>a.py</code></FunctionCall>",
    "delimiter": '◁{"name": "look", "arguments": {"at": "a.py"}}▷',
    "OpenAI": '{"tool_calls": [{"function": {"name": "look", "arguments": "{\\"at\\": \\"a.py\\"}"}}]}',
    "Mistral": '[TOOL_CALLS][{"name": "look", "arguments": {"at": "a.py"}}]',
    "Mistral, named": '[TOOL_CALLS]look[ARGS]{"at": "a.py"}',
    "Llama": '<|python_tag|>{"name": "look", "parameters": {"at": "a.py"}}',
    "Kimi": '<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"at": "a.py"}<|tool_call_end|>',
    "DeepSeek": "<｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"at\": \"a.py\"}<｜tool▁call▁end｜>",  # noqa: RUF001
    "LFM": "<|tool_call_start|>[look(at='a.py')]<|tool_call_end|>",
    "Gemma": '<|tool_call>call:look{at:<|"|>a.py<|"|>}<tool_call|>',
    "Harmony": '<|channel|>commentary to=functions.look<|message|>{"at": "a.py"}',
    "Jamba": '<tool_calls>[{"name": "look", "arguments": {"at": "a.py"}}]</tool_calls>',
    "Phi": 'functools[{"name": "look", "arguments": {"at": "a.py"}}]',
}  # fmt: skip


def calls(text: str, format_name: str = AUTO) -> list[tuple[str, dict[str, Any]]]:
    schema = {"properties": {"at": {"type": "string"}}}
    found = [fitted(call, schema) for call in read_text(text, format_name).calls]
    return [(call.name, call.arguments) for call in found]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
def test_a_call_is_read_in_every_format_with_a_wrapper(written: str) -> None:
    assert calls(written)[:1] == [("look", {"at": "a.py"})]
    text = read_text(written if written.startswith("{") else f"First I look.\n{written}").text
    assert "look" not in text.replace("First I look.", "")


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
def test_a_call_that_is_cut_off_never_counts(written: str) -> None:
    begun = [written[at:] for at in range(1, len(written)) if calls(written[:at])]
    # The list around an invocation does not belong to it.
    assert all("</minimax:tool_call>".endswith(rest) or "</function_calls>".endswith(rest) for rest in begun)
    assert not calls(written[: len(written) // 2])


OTHER = "<tool_call>\n<function=look>\n<parameter=at>\na.py\n</parameter>\n</function>\n</tool_call>"
QUOTED = {
    "in words of code": f"Write `{CALL}` for that.",
    "in two backticks": f"Write ``a ` {CALL}`` for that.",
    "over two lines of code": f"Write `a\n{CALL}` for that.",
    "in a fence": f"Like this:\n```xml\n{CALL}\n```\n",
    "in a fence without an end": f"~~~\n{CALL}",
    "in a longer fence": f"````\n```\n{CALL}\n```\n````",
    "cited": f"The mail says:\n> {CALL}\n",
    "in quotation marks": f'The page says "{CALL}" and more.',
    "in other marks": f"The page says “{CALL}” and more.",
    "two calls, in quotation marks": f'The page says "{CALL}\n{CALL}" and more.',
    "of two tags, in quotation marks": f'The page says "{OTHER}" and more.',
    "of two tags, cited": "The mail says:\n> " + OTHER.replace("\n", "\n> "),
    "of two tags, in a fence": f"```\n{OTHER}\n```",
    "of two tags, in thinking": f"<think>I could {OTHER}</think>No.",
    "in a repeated result": f"<tool_response>\n{CALL}\n</tool_response>",
    "in a repeated result without an end": f"<tool_result name=x>\n{CALL}\n",
    "in a comment": f"<!-- {CALL} -->",
    "in tags that quote": f"<pre>{CALL}</pre>",
    "in thinking": f"<think>I could {CALL}</think>No.",
    "in thinking without an end": f"<think>I could {CALL}",
    "in thinking without a beginning": f"I could {CALL}\n</think>No.",
    "as bare JSON": '{"name": "look", "arguments": {"at": "a.py"}}',
    "as a list of bare JSON": '[{"name": "look", "arguments": {"at": "a.py"}}]',
    "as fenced JSON": '```json\n{"name": "look", "arguments": {"at": "a.py"}}\n```',
    "as JSON in prose": 'I call {"name": "look", "arguments": {"at": "a.py"}} now.',
    "as Python": "[look(at='a.py')]",
    "as a path": "src/main.rs > entry and /etc/hosts > x, look/at>a.py",
}


@pytest.mark.parametrize("text", QUOTED.values(), ids=list(QUOTED))
def test_a_quotation_of_a_call_is_none(text: str) -> None:
    assert calls(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (QUOTED["in words of code"], "quoted"),
        (QUOTED["in a fence"], "fenced"),
        (QUOTED["in a repeated result"], "echoed"),
        (QUOTED["in thinking without a beginning"], "thinking"),
        (QUOTED["in thinking"], "thinking"),
        (QUOTED["in thinking without an end"], "thinking"),
        (QUOTED["cited"], "quoted"),
        (QUOTED["in quotation marks"], "quoted"),
        (QUOTED["of two tags, in quotation marks"], "quoted"),
        (QUOTED["of two tags, cited"], "quoted"),
        (QUOTED["of two tags, in a fence"], "fenced"),
        (QUOTED["of two tags, in thinking"], "thinking"),
        (QUOTED["as bare JSON"], "bare_json"),
        (QUOTED["as fenced JSON"], "bare_json"),
        ('<tool_call>{"name": "look", "arg', "truncated"),
        ('<tool_call>{"name": "look", oops}</tool_call>', "malformed"),
        ('<tool_call>{"arguments": {}}</tool_call>', "malformed"),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', "malformed"),
        ('<tool_call>{"name": "look", "arguments": [1]}</tool_call>', "malformed"),
        ('<tool_call>{"name": "look", "arguments": {"at": 1, "at": 2}}</tool_call>', "malformed"),
        ('<tool_call>{"name": "look", "arguments": {"at": "\\ud800"}}</tool_call>', "malformed"),
        ('<tool_call>{"name": "look", "arguments": {"at": 1e999}}</tool_call>', "malformed"),
        ("<|tool_call_start|>[look(at=1e999)]<|tool_call_end|>", "malformed"),
    ],
)
def test_what_does_not_run_says_why(text: str, reason: str) -> None:
    assert [each.reason for each in read_text(text).rejected] == [reason]


@pytest.mark.parametrize(
    "name",
    ["cited", "in quotation marks", "two calls, in quotation marks", "in a fence", "of two tags, cited"],
)
def test_a_quoted_call_stays_in_the_text_with_its_end(name: str) -> None:
    assert read_text(QUOTED[name]).text == QUOTED[name]


@pytest.mark.parametrize(
    "before",
    ['"<tool_call>" opens a call: ', "'<tool_call> tags' open one: ", '"<tool_call> is not closed.\n\n'],
)
def test_a_call_after_the_name_of_a_tag_counts(before: str) -> None:
    assert calls(f"{before}{CALL}") == [("look", {"at": "a.py"})]
    assert read_text(f"{before}{CALL}").text == before


@pytest.mark.parametrize("before", ["Fix `foo's bug:\n", "```sh\nls\n", "<example>\n"])
def test_a_call_after_a_quotation_that_is_not_closed_does_not_run_and_was_meant(before: str) -> None:
    read = read_text(f"{before}{CALL}")
    assert read.calls == ()
    assert [each.reason for each in read.rejected] == ["malformed"]
    assert "not closed" in read.rejected[0].why
    assert calls(f"Fix `foo's bug:\n\n{CALL}") == [("look", {"at": "a.py"})]


def test_a_call_after_a_quotation_counts() -> None:
    text = f"`<tool_call>` opens a call:\n```\n{CALL}\n```\n> {CALL}\n\n{CALL}\nDone."
    assert calls(text) == [("look", {"at": "a.py"})]
    assert read_text(text).text.endswith("\n\n\nDone.")


def test_nothing_runs_after_a_call_that_cannot_be_read() -> None:
    read = read_text(f"{CALL}\n<tool_call>{{oops}}</tool_call>\n{CALL}")
    assert len(read.calls) == 1
    assert [each.reason for each in read.rejected] == ["malformed", "skipped"]


def test_thinking_is_not_shown() -> None:
    assert read_text("<think>I wonder.</think>\nYes.").text.strip() == "Yes."
    assert read_text("I wonder.</think>\nYes.").text.strip() == "Yes."
    assert read_text("Yes. <think>I wonder").text.strip() == "Yes."


def test_a_value_may_have_the_tags_of_its_format() -> None:
    content = 'a </parameter> "x" </tool_call> & <b>'
    text = f'<invoke name="write"><parameter name="content">{content}</parameter></invoke>'
    assert [call.arguments for call in read_text(text).calls] == [{"content": content}]
    in_json = json.dumps({"name": "write", "arguments": {"content": f"{content}{CALL}"}})
    assert [call.arguments for call in read_text(f"<tool_call>{in_json}</tool_call>").calls] == [
        {"content": f"{content}{CALL}"}
    ]


def test_arguments_get_the_types_of_their_schema() -> None:
    schema = {
        "properties": {
            "count": {"type": "integer"}, "name": {"type": "string"}, "on": {"type": ["boolean", "null"]},
            "rows": {"type": "array", "items": {"type": "number"}}, "any": {},
        }
    }  # fmt: skip
    values = {"count": "42", "name": "42", "on": "true", "rows": "[1, 2.5]", "any": "x"}
    written = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in values.items())
    [call] = read_text(f'<invoke name="f">{written}</invoke>').calls
    assert fitted(call, schema).arguments == {
        "count": 42, "name": "42", "on": True, "rows": [1, 2.5], "any": "x",
    }  # fmt: skip
    assert fitted(call, None).arguments["count"] == 42


@pytest.mark.parametrize("value", ["1e999", '{"at": 1e999}', '["\\ud800"]', "1" * 300])
def test_a_value_that_json_cannot_have_stays_the_text_that_it_is(value: str) -> None:
    [call] = read_text(f'<invoke name="f"><parameter name="at">{value}</parameter></invoke>').calls
    for schema in (None, {"properties": {"at": {}}}, {"properties": {"at": {"type": ["number", "array"]}}}):
        meant = fitted(call, schema).arguments["at"]
        assert msgspec.json.encode(meant).decode().strip('"') in (value, json.dumps(value)[1:-1])


# --- in pieces ------------------------------------------------------------------------------------


def test_no_part_of_a_block_is_ever_shown() -> None:
    for written in WRITTEN.values():
        if written.startswith("{"):
            continue
        reader, shown = TextReader(), ""
        for char in f"I look. {written}" if not written.startswith("```") else f"I look.\n{written}":
            shown += reader.feed(char)
            assert "I look.".startswith(shown.strip()), written
        reader.close()


def test_text_is_shown_as_it_comes() -> None:
    reader = TextReader("hermes")
    assert reader.feed("One <z") == "One <z"
    assert reader.feed(" and <tool") == " and "
    assert reader.feed("box> two") == "<toolbox> two"


ANY = st.lists(
    st.sampled_from(
        [
            CALL, OTHER, f'"{CALL}', f'"{OTHER}"',
            "<tool_call>", "</tool_call>", '{"name":"f","arguments":{}}', "`", "```", "```\n", "\n", "> ", " ",
            '"', "<think>", "</think>", "<tool_response>", "</tool_response>", "<function=f>", "<parameter=a>",
            "</parameter>", "</function>", '<invoke name="f">', "</invoke>", "[TOOL_CALLS]", "f{}", "<|channel|>",
            "<|message|>", "analysis", "<|end|>", "◁", "◁think▷", "▷", "~~~\n", "x", "{", "[", "functools",
            "```tool f\n", "```tool_call\n", "]<]minimax[>[", "<|tool_call>", "call:f{", "}", "<tool_call|>", "é",
            "<|python_tag|>", '{"name":"f","parameters":{}}', "; ",
        ]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@settings(max_examples=many(150))
@given(
    ANY,
    st.sampled_from([AUTO, "hermes", "json", "harmony", "xlam", "gemma4", "llama3_json"]),
    st.integers(1, 9),
)
def test_any_text_is_read_alike_whole_and_in_pieces(text: str, name: str, length: int) -> None:
    whole, reader = read_text(text, name), TextReader(name)
    shown = "".join(reader.feed(text[at : at + length]) for at in range(0, len(text), length))
    assert reader.close() == whole
    assert whole.text.startswith(shown) or "</think>" in text


@pytest.mark.long
@settings(max_examples=5_000)
@given(ANY, st.sampled_from([AUTO, *TEXT_FORMATS]), st.integers(1, 99))
def test_any_text_is_read_alike_in_every_format(text: str, name: str, length: int) -> None:
    reader = TextReader(name)
    for at in range(0, len(text), length):
        reader.feed(text[at : at + length])
    assert reader.close() == read_text(text, name)


# --- what it costs --------------------------------------------------------------------------------


HANGS = [
    "</FunctionCall>", "<FunctionCall>f<code>x>", "<tool_call>", '<tool_call>{"a":{', "<tool_call>f>", "`", "```",
    "[", '{"', "<function=f><parameter=a>x</parameter>y", '<invoke name="f"><parameter name="a">', "[TOOL_CALLS]f{",
    "<think>", " ", "\n", 'TOOL_CALL {tool => "f", args => {--x "', "<tool_call><a>", "<|channel|>", "<!--", "[f(x=[",
    "<tool_call>f<arg_key>a</arg_key>", "functools[", "◁", "<|tool_call>call:f{a:[", "> <tool_call>", "~~~",
]  # fmt: skip


@pytest.mark.parametrize("unit", HANGS)
@pytest.mark.parametrize(("name", "piece"), [(AUTO, 50_000), (AUTO, 16), ("json", 50_000)])
def test_the_cost_of_a_text_grows_with_its_length(unit: str, name: str, piece: int) -> None:
    begun = "</FunctionCall><FunctionCall>f<code>x>1</code></FunctionCall>"

    def read(chars: int) -> None:
        text, reader = begun + unit * (chars // len(unit)), TextReader(name)
        for at in range(0, len(text), piece):
            reader.feed(text[at : at + piece])
        reader.close()

    assert grows_in_line(read, 2_000)


def test_the_rejected_blocks_of_a_text_are_bounded_and_what_was_meant_as_a_call_is_among_them() -> None:
    rejected = read_text("`<tool_call>` " * 1_000 + "<tool_call>{").rejected
    assert [each.reason for each in rejected] == ["quoted"] * MAX_REJECTED + ["truncated"]


def test_deep_values_are_refused_and_not_followed() -> None:
    for opener, deep in (("<tool_call>", '{"a":'), ("<|tool_call_start|>[f(x=", "["), ("<tool_call>", "<a>")):
        assert read_text(opener + deep * 100_000).calls == ()
    closed = '<tool_call>{"name":"f","arguments":' + '{"a":' * 5_000 + "1" + "}" * 5_001 + "</tool_call>"
    assert read_text(closed).calls == ()


# --- the table ------------------------------------------------------------------------------------


def test_the_names_of_the_formats_are_those_that_are_read() -> None:
    assert sorted(formats()) == list(TEXT_FORMATS)
    assert len(form_of(AUTO).families) >= 16


def test_no_token_hides_another_one() -> None:
    """A token inside another one would be read before the longer one has come."""
    for name in (AUTO, *TEXT_FORMATS):
        form = form_of(name)
        tokens = {*form.families, *form.noise, *THOUGHTS, *AFTER_THOUGHTS, *ECHOES, *ECHOES.values()}
        inner = {(longer, token) for longer in tokens for token in (*tokens, "\n") if token in longer[1:-1]}
        assert not inner, name


@pytest.mark.parametrize(
    "block",
    [
        '[TOOL_CALL]{tool => "look", args => {--at "a\\q"}}[/TOOL_CALL]',
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="look">]<]minimax[>[<at>a.py]<]minimax[>[</tool_call>',
    ],
)
def test_a_whole_block_with_a_value_that_is_cut_off_hides_nothing_after_it(block: str) -> None:
    reading = read_text(f"{block} and that is why.")
    assert [(each.reason, each.excerpt) for each in reading.rejected] == [("malformed", block)]
    assert (reading.calls, reading.text) == ((), " and that is why.")
