"""Mutations of what a model still knows after many turns: compactions, the ledger, the history, and evidence."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_COMPACTIONS = "tests/scenarios/test_compaction.py"
_VIEWS = "tests/context/test_views.py"
_SUMMARIES = "tests/core/test_summaries.py"
_LEDGER = "tests/core/test_ledger.py"
_HISTORY = "tests/tools/test_looking_back.py"
_EVIDENCE = "tests/core/test_evidence.py"
_PROGRESS = "tests/core/test_progress.py"

VIEWS = (
    Mutation(
        "a summary that calls tools is used",
        "core/compaction.py",
        "    if calls:",
        "    if False:",
        _SUMMARIES,
    ),
    Mutation(
        "an empty summary is used",
        "core/compaction.py",
        "    if not text.strip():",
        "    if False:",
        _SUMMARIES,
    ),
    Mutation(
        "results stay in the view without their calls",
        "core/compaction.py",
        'if item.mark != "t" and not',
        "if not",
        f"{_VIEWS} {_COMPACTIONS}",
    ),
    Mutation(
        "half of a response stays in the view",
        "core/compaction.py",
        "and not _goes_on(items, place):",
        "and place >= 0:",
        "tests/context/test_conversation.py",
    ),
    Mutation(
        "the task is taken for words of an earlier run",
        "core/compaction.py",
        'if item.mark == "u" and item.seq >= goal_seq]',
        'if item.mark == "u" and item.seq > goal_seq]',
        f"{_VIEWS} {_COMPACTIONS}",
    ),
    Mutation(
        "the last words of a person may be clipped",
        "core/compaction.py",
        "whole, size = dict.fromkeys(spoken[-1:]), 0",
        "whole, size = dict.fromkeys(spoken[:0]), 0",
        _VIEWS,
    ),
    Mutation(
        "the stretches of earlier compactions are forgotten",
        "core/compaction.py",
        "in sorted([*before, *((seq, seq) for seq in dropped)]):",
        "in sorted((seq, seq) for seq in dropped):",
        f"{_VIEWS} {_COMPACTIONS}",
    ),
    Mutation(
        "attempts of the last hour are forgotten",
        "core/compaction.py",
        "(*compaction.asked_ms, at_ms)[-MOST_ASKED:]",
        "(at_ms,)",
        _SUMMARIES,
    ),
    Mutation(
        "a cut of the view loses the ledger",
        "runtime/compacting.py",
        "if done := ledger.text_of(state.ledger):",
        'if done := "":',
        "tests/cli/test_compact.py",
    ),
    Mutation(
        "a compaction without a summary forgets the earlier one",
        "runtime/compacting.py",
        "    elif before.summary:",
        "    elif False:",
        f"{_VIEWS} {_COMPACTIONS}",
    ),
    Mutation(
        "a summary speaks without its frame",
        "runtime/compacting.py",
        'ViewPart("summary", f"{head}\\n{before.waiting.strip()}")',
        'ViewPart("summary", before.waiting.strip())',
        _COMPACTIONS,
    ),
    Mutation(
        "a summary is asked for only when nothing more fits",
        "core/summarizing.py",
        "int(window.room_tokens * ROOM_SHARE)",
        "window",
        f"{_COMPACTIONS}::test_a_summary_that_takes_as_long_as_a_turn_comes_before_the_window_is_full",
    ),
    Mutation(
        "a second summary is asked for while one waits",
        "core/summarizing.py",
        "if compaction.waiting or state.turn.number",
        "if state.turn.number",
        _SUMMARIES,
    ),
    Mutation(
        "reading leaves lines in the ledger",
        "core/ledger.py",
        'if effect in ("read", "ask"):',
        'if effect == "ask":',
        _LEDGER,
    ),
    Mutation(
        "the ledger counts each kind of folded line once",
        "core/ledger.py",
        "folded.get(oldest.kind, 0) + oldest.times",
        "oldest.times",
        _LEDGER,
    ),
    Mutation(
        "the ledger has a line for each repetition",
        "core/ledger.py",
        "others = [each for each in ledger.entries if each.what != what or each.kind != kind]",
        "others = [*ledger.entries]",
        _LEDGER,
    ),
    Mutation(
        "a line of the ledger breaks into several",
        "core/ledger.py",
        'what = " ".join(what.split())',
        "what = what.strip()",
        _LEDGER,
    ),
    Mutation(
        "a whole output counts if it has any of the words",
        "tools/recall.py",
        "return mask_in(content, self._terms) & self._words == self._words",
        "return mask_in(content, self._terms) > 0",
        _HISTORY,
    ),
    Mutation(
        "whole outputs are searched without a bound",
        "tools/recall.py",
        "if left_bytes <= 0 or number == MOST_ENCLOSED:",
        "if number < 0:",
        _HISTORY,
    ),
    Mutation(
        "a search returns as much as it finds",
        "tools/recall.py",
        'min(arguments.get("limit", RESULTS), MOST_RESULTS)',
        'arguments.get("limit", RESULTS)',
        _HISTORY,
    ),
    Mutation(
        "a common word counts as much as a rare one",
        "views/history.py",
        "weights.append(math.log((total + 1) / (many + 1)) + 0.01)",
        "weights.append(1.0)",
        _HISTORY,
    ),
    Mutation(
        "the oldest of equal results comes first",
        "views/history.py",
        "sorted(by_score[score], reverse=True)",
        "sorted(by_score[score])",
        _HISTORY,
    ),
    Mutation(
        "what an error message quotes is a part of it",
        "core/evidence.py",
        "return Evidence(digest_of(_error(kept, arguments)), tests)",
        "return Evidence(digest_of(kept), tests)",
        _EVIDENCE,
    ),
    Mutation(
        "the number of a process is news",
        "core/evidence.py",
        'plain = _PROCESS.sub("~", plain)',
        "pass",
        _EVIDENCE,
    ),
    Mutation(
        "the name of a temporary file is news",
        "core/evidence.py",
        'plain = _TEMPORARY.sub("~", plain)',
        "pass",
        _EVIDENCE,
    ),
    Mutation(
        "a time of day or a duration is news",
        "core/evidence.py",
        'plain = _VARYING.sub("~", text)',
        "plain = text",
        _EVIDENCE,
    ),
    Mutation(
        "only the beginning of a long text is looked at",
        "core/evidence.py",
        '\\0{text[-half:]}"',
        '\\0"',
        _EVIDENCE,
    ),
    Mutation(
        "a return to an earlier state is progress",
        "core/progress.py",
        "not in seen]\n    if not new:",
        "not in seen[-1:]]\n    if not new:",
        _PROGRESS,
    ),
    Mutation(
        "evidence is remembered without a bound",
        "core/progress.py",
        "seen=(*seen, *new)[-SEEN:],",
        "seen=(*seen, *new),",
        _PROGRESS,
    ),
    Mutation(
        "words of a person are no progress",
        "core/progress.py",
        "return changed(replace(progress, stall=0, is_told=False, has_reflected=False))",
        "return changed(progress)",
        _PROGRESS,
    ),
    Mutation(
        "a turn that brings nothing does not count",
        "core/progress.py",
        "stall=progress.stall + counts,",
        "stall=progress.stall,",
        _PROGRESS,
    ),
)
