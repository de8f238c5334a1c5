"""Promises about what a terminal shows: each word once, within the width, and nothing that acts on the terminal."""

from __future__ import annotations

from tests.mutations.bench import Mutation

SCREEN = (
    Mutation(
        "a block of an answer is shown twice",
        "cli/blocks.py",
        "taken, self._done = self._done, []",
        "taken = list(self._done)",
        "tests/cli/test_markdown.py",
    ),
    Mutation(
        "a look at the unfinished block finishes it",
        "cli/markdown.py",
        "return deepcopy(self).end(width)",
        "return self.end(width)",
        "tests/cli/test_markdown.py",
    ),
    Mutation(
        "a control character in a line of code reaches the terminal",
        "cli/blocks.py",
        "text = neutral(raw).expandtabs(4)",
        "text = raw.expandtabs(4)",
        "tests/cli/test_markdown.py::test_a_control_character_is_escaped_exactly_once",
    ),
    Mutation(
        "an entity brings a control character to the terminal",
        "cli/markdown.py",
        'return neutral(text).replace("\\n", " ").replace("\\t", " ")',
        "return text",
        "tests/cli/test_markdown.py::test_an_entity_is_no_way_around_the_escaping",
    ),
    Mutation(
        "an answer with a control character is shown twice",
        "runtime/runner.py",
        "Delta(kind, clean(text), self._session, self._key)",
        "Delta(kind, text, self._session, self._key)",
        "tests/cli/test_screen.py::test_an_answer_with_control_characters_is_shown_once",
    ),
    Mutation(
        "a link hides where it leads",
        "cli/markdown.py",
        "if _bare(label) != _bare(target):",
        "if not label:",
        "tests/cli/test_markdown.py::test_a_link_shows_where_it_leads",
    ),
    Mutation(
        "a long paragraph is held back to its end",
        "cli/blocks.py",
        'elif leaf.kind == "text" and leaf.chars > _HELD_CHARS:',
        'elif leaf.kind == "text" and leaf.chars > 1 << 30:',
        "tests/cli/test_markdown.py::test_what_is_held_back_has_a_bound",
    ),
    Mutation(
        "the parts of a long paragraph begin lines of their own",
        "cli/markdown.py",
        "if block.goes_on:",
        "if not block.lines:",
        "tests/cli/test_markdown.py::test_a_long_paragraph_is_shown_in_full_lines",
    ),
    Mutation(
        "a table cuts the words of a narrow column",
        "cli/markdown.py",
        "if sum(least) > room:",
        "if len(least) > room:",
        "tests/cli/test_markdown.py",
    ),
    Mutation(
        "a list that goes on after code begins again",
        "cli/blocks.py",
        "number = number + 1 if delimiter == mark[-1] else int(mark[:-1])",
        "number += 1",
        "tests/cli/test_markdown.py::test_blocks_inside_and_beside_each_other",
    ),
    Mutation(
        "a word in two styles is broken between them",
        "views/lines.py",
        "                word.append(Span(piece, span.style))\n                continue",
        "                yield [Span(piece, span.style)]\n                continue",
        "tests/views/test_lines.py",
    ),
    Mutation(
        "a clipped line ends inside a word",
        "views/lines.py",
        "return text[: begin if is_cut else end].rstrip()",
        "return text[:end].rstrip()",
        "tests/views/test_lines.py",
    ),
    Mutation(
        "the summary leaves out the time of retries",
        "core/summary.py",
        "return max((run.ended_ms or state.at_ms) - run.started_ms, 0) if run is not None else 0",
        "return run.driven_ms if run is not None else 0",
        "tests/cli/test_screen.py::test_the_summary_counts_the_time_of_retries",
    ),
)
