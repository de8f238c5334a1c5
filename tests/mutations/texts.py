"""Mutations of how calls are read from text, and of what keeps others from writing them."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_CALLS = "tests/providers/test_text_calls.py"
_MODEL = "tests/providers/test_text_model.py"
_SCENES = "tests/scenarios/test_text_models.py"

TEXTS = (
    Mutation(
        "a call in a fence runs",
        "providers/text_calls.py",
        'if is_fence and "`" not in rest:',
        "if False:",
        _CALLS,
    ),
    Mutation(
        "a call after > runs",
        "providers/text_calls.py",
        "self._is_cited or words.startswith",
        "self._is_cited and words.startswith",
        _CALLS,
    ),
    Mutation(
        "a call in quotation marks runs",
        "providers/text_calls.py",
        "(is_in_marks and not family.is_bare)",
        "False",
        _CALLS,
    ),
    Mutation(
        "thinking without a beginning is an answer",
        "providers/text_calls.py",
        "            self._forget()\n",
        "",
        _CALLS,
    ),
    Mutation(
        "a call after a broken one runs",
        "providers/text_calls.py",
        "        self._is_broken = True\n",
        "",
        _CALLS,
    ),
    Mutation(
        "a block is read again with each piece",
        "providers/text_calls.py",
        "self._retry_chars = max(_RETRY_CHARS, len(self._text) - self._at)",
        "self._retry_chars = 0",
        _CALLS,
    ),
    Mutation(
        "half a token is shown",
        "providers/text_calls.py",
        "self._pass_to(len(self._text) if self._is_final else self._held())",
        "self._pass_to(len(self._text))",
        _CALLS,
    ),
    Mutation(
        "an argument may come twice",
        "providers/text_blocks.py",
        "if len(members) != len(pairs):",
        "if False:",
        _CALLS,
    ),
    Mutation(
        "a value ends at its first closing tag",
        "providers/text_xml.py",
        "if any(text.startswith(follower, nxt) for follower in followers):",
        "if True:",
        _CALLS,
    ),
    Mutation(
        "bare JSON runs",
        "providers/text_formats.py",
        "if not family.is_bare or (not is_wrapped and (name != AUTO or family.is_whole)):",
        "if True:",
        f"{_CALLS} {_MODEL}",
    ),
    Mutation(
        "a run reads calls without a wrapper",
        "providers/text_model.py",
        "reading = read_text(text_of(reply.parts), self._format, is_wrapped=True)",
        'reading = read_text(text_of(reply.parts), "json")',
        f"{_MODEL} {_SCENES}",
    ),
    Mutation(
        "a result may have an opener",
        "providers/text_model.py",
        "text = defused(part.text, self._format)",
        "text = part.text",
        f"{_MODEL} {_SCENES}",
    ),
    Mutation(
        "words of a person may have an opener",
        "providers/text_model.py",
        "return Text(defused(text, self._format))",
        "return part",
        _SCENES,
    ),
    Mutation(
        "a block of others runs without its backslash",
        "providers/text_model.py",
        "            elif is_echo[block]:\n",
        "            elif False:\n",
        _SCENES,
    ),
    Mutation(
        "the tags of results are the same in every session",
        "providers/text_model.py",
        'f"results of {session}"',
        '"results of a session"',
        _MODEL,
    ),
    Mutation(
        "a block that cannot be read is dropped in silence",
        "providers/text_model.py",
        "if each.reason in _TOLD or each.why == _ECHOED:",
        "if False:",
        f"{_MODEL} {_SCENES}",
    ),
    Mutation(
        "raw blocks are shown while they arrive",
        "providers/text_model.py",
        "elif shown := reader.feed(delta.text):",
        "elif reader.feed(delta.text) or (shown := delta.text):",
        _MODEL,
    ),
    Mutation(
        "calls in the text of a model with native calls run",
        "runtime/in_text.py",
        "    if not facts.text_calls:\n        return provider\n",
        "",
        _SCENES,
    ),
    Mutation(
        "an unreadable call counts as one of no tool",
        "tools/unreadable.py",
        'return Failure("invalid_json", message)',
        'return Failure("unknown_tool", message)',
        _SCENES,
    ),
    Mutation(
        "a name in a configuration file writes lines of an error",
        "config/sources.py",
        "else _quoted(each) for",
        "else f'\"{each}\"' for",
        "tests/config/test_any_value.py",
    ),
)
