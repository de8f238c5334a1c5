"""How much of what a compaction leaves out can still be read: its paths, numbers, names and quoted words.

Pure, and linear in the size of the texts.
"""

from __future__ import annotations

import re
from itertools import islice

# A fact is a word with something that plain words lack: a digit, a slash, an underscore, a dot or capital inside. An
# example: in `see src/app.py:41, "retry after" is 30` the facts are `src/app.py:41`, `30` and `retry after`.
_WORD = re.compile(r"[\w./:~@-]+")
_QUOTED = re.compile(r"""["'`]([^"'`\n]{1,80})["'`]""")
_FACT = re.compile(r"[\d/_]|\w\.\w|[a-z][A-Z]")
MOST_WORD_CHARS = 200
"""A longer word does not name anything: it is the content of a file in base64, say."""
MOST_FACTS = 20_000


def facts_in(text: str) -> frozenset[str]:
    """Return the paths, numbers, names and quoted words of a text; of a very long one, only the first."""
    found: set[str] = set()
    for match in _WORD.finditer(text):
        word = match[0].strip("./:-")
        if word and len(word) <= MOST_WORD_CHARS and _FACT.search(word):
            found.add(word)
            if len(found) >= MOST_FACTS:
                break
    found.update(match[1] for match in islice(_QUOTED.finditer(text), MOST_FACTS))
    return frozenset(found)


def kept_share(dropped: str, view: str) -> float:
    """Return the share of the facts of `dropped` that `view` has too; 1 without facts."""
    facts = facts_in(dropped)
    return round(len(facts & facts_in(view)) / len(facts), 3) if facts else 1.0


def plain(encoded: bytes) -> str:
    """Return an encoded message for a search: without the escapes of JSON."""
    return encoded.decode("utf-8", "replace").replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t")
