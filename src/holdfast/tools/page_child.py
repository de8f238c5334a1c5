"""Makes text of a page, in a process that can be killed: `python -I -S page_child.py FOLDER WANTED CHARSET < page`.

FOLDER has the library, WANTED is `text` or `results`, and CHARSET is the one that the server names, or empty.
Some pages of a few hundred KiB take its parser minutes.
"""

from __future__ import annotations

import re
import resource
import sys
from typing import Any

MAX_MEMORY_BYTES = 1 << 30
MAX_ROWS = 50
_HIDDEN = '[hidden], [aria-hidden="true"], template'
_HIDING = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|(?:opacity|font-size):0(?:\.0*)?(?![.\d])"
    r"|(?:left|top|right|bottom|text-indent):-\d{3}"
)
_MAX_STYLE_CHARS = 10_000


def main() -> None:
    """Print what is wanted: the text of the page, or the results on the page of a search engine as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    sys.path.insert(0, sys.argv[1])
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5
    from resiliparse.parse.html import HTMLTree

    wanted, named = sys.argv[2:]
    page = sys.stdin.buffer.read()
    said = map_encoding_to_html5(named, fallback_utf8=False) if named else None
    charset = said or detect_encoding(page, from_html_meta=True) or "utf-8"
    tree = HTMLTree.parse_from_bytes(page, charset, "replace")
    sys.stdout.write(_results(tree.body) if wanted == "results" else _text(tree))


def _text(tree: Any) -> str:
    """Return the title and the text of the page, without what its own elements hide."""
    from resiliparse.extract.html2text import extract_plain_text

    if tree.body is not None:
        _remove_hidden(tree.body)
    text = extract_plain_text(tree, links=True, alt_texts=True)
    title = " ".join((tree.title or "").split())
    return f"{title}\n\n{text}\n" if title else f"{text}\n"


def _results(body: Any) -> str:
    """Return the results of DuckDuckGo's page without scripts, as JSON."""
    import json  # the text of a page does without it

    found = []
    for row in body.query_selector_all(".result")[:MAX_ROWS] if body is not None else ():
        link, text = row.query_selector(".result__a"), row.query_selector(".result__snippet")
        if link is not None:
            shown = text.text if text is not None else ""
            found.append({"title": link.text, "url": link.getattr("href") or "", "text": shown})
    says_none = body is not None and body.query_selector(".no-results, .result--no-result") is not None
    return json.dumps({"results": found, "says_none": says_none})


def _remove_hidden(body: Any) -> None:
    for element in body.query_selector_all(_HIDDEN):
        element.decompose()
    for element in body.query_selector_all("[style]"):
        style = "".join((element.getattr("style") or "")[:_MAX_STYLE_CHARS].lower().split())
        if _HIDING.search(style):
            element.decompose()


if __name__ == "__main__":
    main()
