"""Which openers each format of text calls has, and who reads what follows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from holdfast.protocol.text_formats import AUTO
from holdfast.providers.text_blocks import Reader
from holdfast.providers.text_tags import (
    TagReader,
    after,
    back,
    fence_json,
    fence_named,
    function_call,
    ifm_reader,
    json_reader,
    keyed_json_reader,
    list_reader,
    openai,
    perl_reader,
    prefixed_elements,
    python_reader,
    separated_json,
)
from holdfast.providers.text_tokens import (
    GemmaReader,
    deepseek,
    functionary,
    harmony_reader,
    kimi,
    kimi3,
    mistral,
    plamo,
)
from holdfast.providers.text_xml import function_reader, invoke_reader


class Family(msgspec.Struct, frozen=True):
    """One way to write a call."""

    opener: str
    read: Reader
    closer: str = ""
    """Where reading goes on after a block that is not readable."""
    is_bare: bool = False
    """It has no wrapper: what is not readable is plain text. Only a declared format reads it."""
    is_whole: bool = False
    """It counts only if it is the whole text."""


class Form(msgspec.Struct, frozen=True):
    """What is looked for in a text."""

    families: Mapping[str, Family]
    """By opener."""
    noise: frozenset[str]
    """What says nothing to a reader, and closers that close nothing."""
    tokens: re.Pattern[str]
    """Finds the next opener, think tag, echo, noise, run of backticks or empty line."""
    prefixes: frozenset[str]
    """Every beginning of a token: a text that ends with one may go on as the token."""
    longest: int


THOUGHTS: dict[str, tuple[str, ...]] = {
    "<think>": ("</think>",),
    "<thinking>": ("</thinking>",),
    "<thought>": ("</thought>",),
    "<reasoning>": ("</reasoning>",),
    "<seed:think>": ("</seed:think>",),
    "<mm:think>": ("</mm:think>",),
    "[THINK]": ("[/THINK]",),
    "◁think▷": ("◁/think▷",),
    "<|START_THINKING|>": ("<|END_THINKING|>",),
    "<|channel>thought": ("<channel|>",),
    "to=self<|message|>": ("<|eom|>",),
}
"""Where thinking begins, and what ends it."""
AFTER_THOUGHTS = frozenset(
    [end for ends in THOUGHTS.values() for end in ends if end not in ("<channel|>", "<|eom|>")]
    + ["[BEGIN FINAL RESPONSE]"]
)
"""What comes before one of these was thinking, although nothing said that it begins."""
ECHOES: dict[str, str] = {
    "<tool_response>": "</tool_response>",
    "<tool_result": "</tool_result",
    "<tool_output>": "</tool_output>",
    "<function_results>": "</function_results>",
    "<function_response>": "</function_response>",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
    "<｜tool▁outputs▁begin｜>": "<｜tool▁outputs▁end｜>",
    "<|START_TOOL_RESULT|>": "<|END_TOOL_RESULT|>",
    "<!--": "-->",
    "<pre>": "</pre>",
    "<blockquote>": "</blockquote>",
    "<example>": "</example>",
}
"""Where a model repeats what a tool returned, quotes, or writes what nobody is to see."""
NOISE = frozenset([
    "<function_calls>", "</function_calls>",
    "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>", "<|return|>",
    "<|call|>", "<|end_message|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
    "<|END_TEXT|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>",
    "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>",
    "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>",
    "<minimax:tool_call>", "</minimax:tool_call>", "<minimax:toolcall>", "</minimax:toolcall>",
    "<atem:function_calls>", "</atem:function_calls>", "<|python_start|>", "<|python_end|>",
    "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>", "<|channel>", "<channel|>",
    "</ifm|tool_calls>", "<｜DSML｜ calls>", "</｜DSML｜ calls>", "<|open|>tools<|sep|>",
    "<|close|>tools<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>", "to=user<|message|>",
])  # fmt: skip
"""Tokens that say nothing to a reader."""


def _json(opener: str, *closers: str) -> Family:
    return Family(opener, json_reader(*closers), closers[0] if closers else "")


def _tag(opener: str, *closers: str) -> Family:
    return Family(opener, TagReader(*closers), closers[0])


def _invoke(prefix: str, tag: str = "invoke", parameter: str = "parameter", space: str = "") -> Family:
    read = invoke_reader(prefix, tag, parameter, space)
    return Family(f"<{prefix}{space}{tag}", read, f"</{prefix}{space}{tag}>")


_TAG_ENDS = ("</tool_call>", "</toolcall>", "</tool-call>", "</invoke>")
_TAGS = tuple(_tag(f"<{name}>", f"</{name}>", *_TAG_ENDS) for name in ("tool_call", "toolcall", "tool-call"))
_ATTRIBUTES = Family("<tool_call ", TagReader(*_TAG_ENDS), "</tool_call>")
_FUNCTION = Family("<function=", function_reader, "</function>")
_INVOKE = Family("<invoke ", invoke_reader(""), "</invoke>")
_ANTML = _invoke("antml:")
_LISTS = Family("<tool_calls>", list_reader("</tool_calls>"), "</tool_calls>")
_FUNCTION_LIST = Family(
    "<function_calls>", python_reader("</function_calls>", is_bare=True), "</function_calls>"
)
_SEED = _tag("<seed:tool_call>", "</seed:tool_call>")
_TOOLCALL = _json("<TOOLCALL>", "</TOOLCALL>")
_LONGCAT = _json("<longcat_tool_call>", "</longcat_tool_call>")
_DOTS = Family("<dots_function_call>", list_reader("</dots_function_call>"), "</dots_function_call>")
_ACTION = _json("<|START_ACTION|>", "<|END_ACTION|>")
_COMMAND_R = Family("Action:", after("\n```json\n", json_reader("```")), "```")
_INTERN = _json("<|action_start|><|plugin|>", "<|action_end|>")
_APERTUS = Family("<|tools_prefix|>", keyed_json_reader("<|tools_suffix|>"), "<|tools_suffix|>")
_DELIMITER = _json("◁", "▷")
_INKLING = _json("<|content_invoke_tool_json|>", "<|end_message|>", "<|content_model_end_sampling|>")
_IFM = Family("<ifm|tool_calls>", ifm_reader, "</ifm|tool_calls>")
_GRANITE = tuple(Family(opener, json_reader(opens=("[", "`"))) for opener in ("<|tool_call|>", "<tool_call>"))
_GRANITE_20B = Family("<function_call>", json_reader(opens=("{",)))
_FUNCTOOLS = Family("functools[", back(json_reader(), len("[")))
_GIGACHAT = (
    _json("<|function_call|>"),
    Family("<|message_sep|>", after("\n\nfunction call<|role_sep|>\n", json_reader())),
)
_PYTHON_TAG = Family("<|python_tag|>", separated_json)
_MISTRAL = Family("[TOOL_CALLS]", mistral)
_DEEPSEEK = Family("<｜tool▁call▁begin｜>", deepseek, "<｜tool▁call▁end｜>")
_DSML, _DSML_SPACED = _invoke("｜DSML｜"), _invoke("｜DSML｜", space=" ")
_STEP3 = Family("function<｜tool_sep｜><steptml:invoke", invoke_reader("steptml:"), "</steptml:invoke>")
_ATEM = _invoke("atem:")
_MINICPM = tuple(
    Family(opener, back(invoke_reader("", "function", "param"), len("name")), "</function>")
    for opener in ("<function name", "<functionĠname", "<functionname")
)
_MINIMAX3 = Family(
    "]<]minimax[>[<tool_call>", prefixed_elements("]<]minimax[>["), "]<]minimax[>[</tool_call>"
)
_KIMI = Family("<|tool_call_begin|>", kimi, "<|tool_call_end|>")
_KIMI3 = Family("<|open|>call ", kimi3, "<|close|>call<|sep|>")
_LFM = Family("<|tool_call_start|>", python_reader("<|tool_call_end|>"), "<|tool_call_end|>")
_HARMONY = tuple(Family(o, harmony_reader(o)) for o in ("<|channel|>", "<|start|>", " to=functions."))
_GEMMA = Family("<|tool_call>", GemmaReader('<|"|>', "<tool_call|>"), "<tool_call|>")
_FUNCTION_GEMMA = Family(
    "<start_function_call>", GemmaReader("<escape>", "<end_function_call>"), "<end_function_call>"
)
_PLAMO = Family("<|plamo:begin_tool_request:plamo|>", plamo, "<|plamo:end_tool_request:plamo|>")
_FENCES = (
    *(Family(f"```{word}\n", fence_json, "```") for word in ("tool_call", "tool-call", "toolcall", "invoke")),
    Family("```tool ", fence_named, "```"),
)
_PERL = (
    Family("[TOOL_CALL]", perl_reader("[/TOOL_CALL]"), "[/TOOL_CALL]"),
    Family("TOOL_CALL {", perl_reader("/TOOL_CALL"), "/TOOL_CALL"),
)
_FUNCTION_CALL = Family("<FunctionCall>", function_call, "</FunctionCall>")
_OPENAI = Family("{", openai, is_bare=True, is_whole=True)
_BARE_JSON = tuple(Family(opener, json_reader(), is_bare=True) for opener in "{[")
_FUNCTIONARY = Family(">>>", functionary, is_bare=True)
_FENCED_JSON = Family("```json\n", fence_json, is_bare=True)
_BARE_LLAMA = Family("{", separated_json, is_bare=True)
_PYTHON = Family("<|python_start|>", python_reader())
_BARE_PYTHON = Family("[", python_reader(), is_bare=True)

_QWEN = (Family("<tool_call>", TagReader(*_TAG_ENDS, has_names=False), "</tool_call>"), _FUNCTION)
_FORMATS: dict[str, tuple[Family, ...]] = {
    "apertus": (_APERTUS,),
    "apriel": (_LISTS,),
    "cohere": (_ACTION,),
    "cohere2moe": (_ACTION,),
    "command_r7b": (_ACTION,),
    "command_r_plus": (_COMMAND_R,),
    "deepseek_r1": (_DEEPSEEK,),
    "deepseek_v3": (_DEEPSEEK,),
    "deepseek_v31": (_DEEPSEEK,),
    "deepseek_v32": (_DSML,),
    "deepseek_v4": (_DSML,),
    "deepseek_v41": (_DSML_SPACED,),
    "deepseek_v4_flash": (_DSML,),
    "delimiter": (_DELIMITER,),
    "dots": (_DOTS,),
    "ernie45": _TAGS,
    "fence": _FENCES,
    "firefunction_v2": (_FUNCTOOLS,),
    "function_call": (_FUNCTION_CALL,),
    "functionary_v31": (_FUNCTION,),
    "functionary_v32": (_FUNCTIONARY,),
    "functiongemma": (_FUNCTION_GEMMA,),
    "gemma4": (_GEMMA,),
    "generic_json": _BARE_JSON,
    "gigachat3": _GIGACHAT,
    "glm45": _TAGS,
    "glm47": _TAGS,
    "granite": _GRANITE,
    "granite4": _TAGS,
    "granite_20b_fc": (_GRANITE_20B,),
    "harmony": _HARMONY,
    "hermes": _TAGS,
    "hunyuan": (_LISTS,),
    "hunyuan_v3": (_LISTS, *_TAGS),
    "inkling": (_INKLING,),
    "internlm2": (_INTERN,),
    "invoke": (_INVOKE, _ANTML),
    "jamba": (_LISTS,),
    "json": _BARE_JSON,
    "k2_horizon": (_IFM,),
    "kimi_k2": (_KIMI,),
    "kimi_k3": (_KIMI3,),
    "lfm2": (_LFM,),
    "ling3": _TAGS,
    "llama3_json": (_PYTHON_TAG, _BARE_LLAMA),
    "llama4_pythonic": (_PYTHON, _BARE_PYTHON),
    "longcat": (_LONGCAT,),
    "mimo": _QWEN,
    "minicpm5_xml": _MINICPM,
    "minimax_m2": (_INVOKE,),
    "minimax_m3": (_MINIMAX3,),
    "mistral": (_MISTRAL,),
    "muse": (_ATEM,),
    "muse_glimmer": (_ATEM,),
    "nemotron_v2": (_TOOLCALL,),
    "nemotron_v3": _QWEN,
    "olmo3_pythonic": (_FUNCTION_LIST,),
    "openai_json": (_OPENAI,),
    "perl": _PERL,
    "phi4_mini": (_FUNCTOOLS,),
    "plamo3": (_PLAMO,),
    "poolside_v1": _TAGS,
    "pythonic": (_BARE_PYTHON,),
    "qwen3_xml": _QWEN,
    "reka": _TAGS,
    "seed_oss": (_SEED,),
    "spark": _TAGS,
    "step3": (_STEP3,),
    "step3p5": _QWEN,
    "xlam": (*_TAGS, _MISTRAL, _FENCED_JSON, *_BARE_JSON),
}


def formats() -> list[str]:
    """Return the names of all formats."""
    return list(_FORMATS)


@lru_cache(maxsize=128)
def form_of(name: str, *, is_wrapped: bool = False) -> Form:
    """Return what is looked for in a text of a format. The name `AUTO` is every format that has a wrapper.

    With `is_wrapped`, what has no wrapper of its own is not looked for, whatever the format.
    """
    chosen = _FORMATS.values() if name == AUTO else (_FORMATS[name],)
    families: dict[str, Family] = {}
    for family in (family for group in chosen for family in group):
        if not family.is_bare or (not is_wrapped and (name != AUTO or family.is_whole)):
            families.setdefault(family.opener, family)
    noise = NOISE | {family.closer for family in families.values() if family.closer.startswith(("<", "["))}
    tokens = {*families, *THOUGHTS, *AFTER_THOUGHTS, *ECHOES, *ECHOES.values(), *noise}
    pattern = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
    return Form(
        families,
        noise,
        re.compile(rf"{pattern}|`{{1,200}}|~{{3,200}}|\n"),
        frozenset(token[:length] for token in (*tokens, "~~~") for length in range(1, len(token))),
        max(map(len, tokens)),
    )
