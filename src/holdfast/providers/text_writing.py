"""Writes calls in the formats that models read and write best: for the description of a format, and for what a
conversation has of earlier calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.protocol.text_formats import AUTO

Write = Callable[[str, Mapping[str, Any]], str]
"""Writes a call: the tool's name, and its arguments."""
_NAMES = ("name", "arguments")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _blocks(opener: str, closer: str, *, is_list: bool = False, keys: tuple[str, str] = _NAMES) -> Write:
    def write(name: str, arguments: Mapping[str, Any]) -> str:
        call = _json({keys[0]: name, keys[1]: arguments})
        return f"{opener}[{call}]{closer}" if is_list else f"{opener}{call}{closer}"

    return write


def _named(before: str, between: str, after: str) -> Write:
    """Return what writes the name, and the arguments as JSON."""
    return lambda name, arguments: f"{before}{name}{between}{_json(arguments)}{after}"


def _functions(opener: str, closer: str) -> Write:
    def write(name: str, arguments: Mapping[str, Any]) -> str:
        lines = "".join(
            f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in arguments.items()
        )
        return f"{opener}<function={name}>\n{lines}</function>{closer}"

    return write


def _invocations(opener: str, closer: str, prefix: str = "", *, says_strings: bool = False) -> Write:
    def write(name: str, arguments: Mapping[str, Any]) -> str:
        lines = ""
        for key, value in arguments.items():
            kind = f' string="{_json(isinstance(value, str))}"' if says_strings else ""
            lines += f'<{prefix}parameter name="{key}"{kind}>{_text(value)}</{prefix}parameter>\n'
        return f'{opener}<{prefix}invoke name="{name}">\n{lines}</{prefix}invoke>{closer}'

    return write


def _keyed(opener: str, closer: str, after_name: str = "\n") -> Write:
    def write(name: str, arguments: Mapping[str, Any]) -> str:
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n"
            for key, value in arguments.items()
        )
        return f"{opener}{name}{after_name}{pairs}{closer}"

    return write


def _python(opener: str, closer: str) -> Write:
    def write(name: str, arguments: Mapping[str, Any]) -> str:
        pairs = ", ".join(f"{key}={_plain(value)}" for key, value in arguments.items())
        return f"{opener}{name}({pairs}){closer}"

    return write


def _plain(value: Any) -> str:
    """Return a value as Python writes it. A text is written as in JSON, which Python reads alike."""
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_plain(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return repr(value)


def _gemma(opener: str, quote: str, closer: str) -> Write:
    def plain(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{plain(each)}" for key, each in value.items()) + "}"
        return f"[{','.join(map(plain, value))}]" if isinstance(value, list | tuple) else _json(value)

    return lambda name, arguments: f"{opener}call:{name}{plain(dict(arguments))}{closer}"


def _kimi3(name: str, arguments: Mapping[str, Any]) -> str:
    parts = "".join(
        f'<|open|>argument key="{key}" type="{"string" if isinstance(value, str) else "json"}"<|sep|>'
        f"{_text(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{parts}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def _apertus(name: str, arguments: Mapping[str, Any]) -> str:
    return f"<|tools_prefix|>[{_json({name: arguments})}]<|tools_suffix|>"


_HERMES = _blocks("<tool_call>\n", "\n</tool_call>")
_QWEN = _functions("<tool_call>\n", "\n</tool_call>")
_GLM = _keyed("<tool_call>", "</tool_call>")
_LISTED = _blocks("<tool_calls>", "</tool_calls>", is_list=True)
_COHERE = _blocks("<|START_ACTION|>", "<|END_ACTION|>", is_list=True, keys=("tool_name", "parameters"))
_FUNCTOOLS = _blocks("functools", "", is_list=True)
_DEEPSEEK = _named(
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
    "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)  # fmt: skip
_DSML = _invocations("<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>", "｜DSML｜", says_strings=True)
_ATEM = _invocations("<atem:function_calls>\n", "\n</atem:function_calls>", "atem:")

WRITERS: Mapping[str, Write] = {
    AUTO: _HERMES,
    "apertus": _apertus,
    "apriel": _LISTED,
    "cohere": _COHERE,
    "cohere2moe": _COHERE,
    "command_r7b": _COHERE,
    "command_r_plus": _blocks("Action:\n```json\n", "\n```", is_list=True, keys=("tool_name", "parameters")),
    "deepseek_r1": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v31": _named(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek_v32": _invocations(
        "<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>", "｜DSML｜", says_strings=True
    ),
    "deepseek_v4": _DSML,
    "deepseek_v4_flash": _DSML,
    "delimiter": _blocks("◁", "▷"),
    "dots": _blocks("<dots_function_call>", "</dots_function_call>"),
    "ernie45": _HERMES,
    "fence": _blocks("```tool_call\n", "\n```"),
    "firefunction_v2": _FUNCTOOLS,
    "functionary_v31": _named("<function=", ">", "</function>"),
    "functiongemma": _gemma("<start_function_call>", "<escape>", "<end_function_call>"),
    "gemma4": _gemma("<|tool_call>", '<|"|>', "<tool_call|>"),
    "gigachat3": _blocks("<|function_call|>", ""),
    "glm45": _GLM,
    "glm47": _keyed("<tool_call>", "</tool_call>", ""),
    "granite": _blocks("<|tool_call|>", "", is_list=True),
    "granite4": _HERMES,
    "granite_20b_fc": _blocks("<function_call> ", ""),
    "harmony": _named("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
    "hermes": _HERMES,
    "hunyuan": _LISTED,
    "hunyuan_v3": _keyed("<tool_calls>\n<tool_call>", "</tool_call>\n</tool_calls>", "<tool_sep>\n"),
    "inkling": _blocks("<|content_invoke_tool_json|>", "<|end_message|>", keys=("name", "args")),
    "internlm2": _blocks("<|action_start|><|plugin|>", "<|action_end|>", keys=("name", "parameters")),
    "invoke": _invocations("<function_calls>\n", "\n</function_calls>"),
    "jamba": _LISTED,
    "k2_horizon": _blocks("<ifm|tool_calls><ifm|tool_call>", "</ifm|tool_call></ifm|tool_calls>"),
    "kimi_k2": _named(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "kimi_k3": _kimi3,
    "lfm2": _python("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "ling3": _GLM,
    "llama3_json": _blocks("<|python_tag|>", "", keys=("name", "parameters")),
    "llama4_pythonic": _python("<|python_start|>[", "]<|python_end|>"),
    "longcat": _blocks("<longcat_tool_call>", "</longcat_tool_call>"),
    "mimo": _QWEN,
    "minimax_m2": _invocations("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    "mistral": _named("[TOOL_CALLS]", "[ARGS]", ""),
    "muse": _ATEM,
    "muse_glimmer": _ATEM,
    "nemotron_v2": _blocks("<TOOLCALL>", "</TOOLCALL>", is_list=True),
    "nemotron_v3": _QWEN,
    "olmo3_pythonic": _python("<function_calls>", "</function_calls>"),
    "phi4_mini": _FUNCTOOLS,
    "plamo3": _named(
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
    ),
    "poolside_v1": _GLM,
    "qwen3_xml": _QWEN,
    "reka": _HERMES,
    "seed_oss": _functions("<seed:tool_call>\n", "\n</seed:tool_call>"),
    "spark": _GLM,
    "step3": _invocations(
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>",
        "<｜tool_call_end｜><｜tool_calls_end｜>", "steptml:",
    ),
    "step3p5": _QWEN,
}  # fmt: skip
"""How calls are written in each format that a run may use, by its name."""


def written(format_name: str, name: str, arguments: str) -> str:
    """Return a call in a format. Arguments that are not a JSON object are written as they are, in JSON's place."""
    try:
        values = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError):
        values = None
    if not isinstance(values, dict):
        return f"{name} {arguments}"
    return WRITERS[format_name](name, values)
