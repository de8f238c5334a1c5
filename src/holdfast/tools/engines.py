"""How each search engine is asked, and how its answer is read. Nothing here sends anything.

An engine is made by its factory from an entry of `[search] engines`. Its answer was written by strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from holdfast.protocol.search import KEY_VARIABLES, SearchEngine
from holdfast.protocol.untrusted import decode_untrusted

SNIPPET_CHARS = 500


class Question(msgspec.Struct, frozen=True):
    """What to send to an engine."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class Hit(msgspec.Struct, frozen=True):
    """One result as an engine gives it."""

    title: str
    url: str
    text: str


class NoAnswer(ValueError):
    """The answer is not what the engine's format says. The message is the end of a sentence about the engine."""


class Engine(Protocol):
    """One search engine."""

    is_page: bool
    """Whether it answers with a page, whose links and texts `page_child` finds."""

    def ask(self, query: str, limit: int, key: str) -> Question:
        """Return what to send."""
        ...

    def hits(self, answer: Any) -> list[Hit]:
        """Return the results in a decoded answer.

        Raises:
            NoAnswer: it has another format.
        """
        ...


class _Exa:
    is_page = False

    def __init__(self, entry: SearchEngine) -> None:
        self._url = f"{entry.address}/search"

    def ask(self, query: str, limit: int, key: str) -> Question:
        excerpts = {"highlights": {"maxCharacters": SNIPPET_CHARS}}
        body = {"query": query, "type": "auto", "numResults": limit, "contents": excerpts}
        return _json_question(self._url, {"x-api-key": key}, body)

    def hits(self, answer: Any) -> list[Hit]:
        def text(each: dict[str, Any]) -> str:
            said = each.get("highlights")
            parts = [part for part in said if isinstance(part, str)] if isinstance(said, list) else []
            return " … ".join(parts) or _text(each, "text") or _text(each, "summary")

        return [Hit(_text(each, "title"), _text(each, "url"), text(each)) for each in _results(answer)]


class _Tavily:
    is_page = False

    def __init__(self, entry: SearchEngine) -> None:
        self._url = f"{entry.address}/search"

    def ask(self, query: str, limit: int, key: str) -> Question:
        body = {"query": query, "max_results": limit, "search_depth": "basic"}
        return _json_question(self._url, {"Authorization": f"Bearer {key}"}, body)

    def hits(self, answer: Any) -> list[Hit]:
        return _hits_with_content(answer)


class _SearXng:
    is_page = False

    def __init__(self, entry: SearchEngine) -> None:
        self._url = f"{entry.address}/search"

    def ask(self, query: str, limit: int, key: str) -> Question:
        asked = urlencode({"q": query, "format": "json"})
        return Question("GET", f"{self._url}?{asked}", {"Accept": "application/json"})

    def hits(self, answer: Any) -> list[Hit]:
        return _hits_with_content(answer)


class _DuckDuckGo:
    """The page without scripts. Its links lead through the engine, and name their target."""

    is_page = True

    def __init__(self, entry: SearchEngine) -> None:
        self._url = f"{entry.address}/html/"

    def ask(self, query: str, limit: int, key: str) -> Question:
        return Question("GET", f"{self._url}?{urlencode({'q': query})}", {"Accept": "text/html"})

    def hits(self, answer: Any) -> list[Hit]:
        rows = _results(answer)
        if not rows and not answer.get("says_none"):
            raise NoAnswer("answered with a page without results, as it does when it wants to see a person")
        hits = [Hit(_text(each, "title"), _target(_text(each, "url")), _text(each, "text")) for each in rows]
        return [hit for hit in hits if hit.url]


ENGINES: Mapping[str, Callable[[SearchEngine], Engine]] = {
    "exa": _Exa,
    "tavily": _Tavily,
    "duckduckgo": _DuckDuckGo,
    "searxng": _SearXng,
}
"""The factory of each engine."""


def decoded(body: bytes) -> Any:
    """Return the value in an answer that is JSON.

    Raises:
        NoAnswer: it is not JSON.
    """
    try:
        return decode_untrusted(body)
    except msgspec.DecodeError:
        raise NoAnswer("answered with something else than JSON") from None


def needs_key(entry: SearchEngine) -> str:
    """Return the variable with the key of an engine; empty if it needs none."""
    return KEY_VARIABLES.get(entry.name, "")


def _json_question(url: str, headers: Mapping[str, str], body: object) -> Question:
    headers = {"Accept": "application/json", "Content-Type": "application/json", **headers}
    return Question("POST", url, headers, msgspec.json.encode(body))


def _hits_with_content(answer: Any) -> list[Hit]:
    return [
        Hit(_text(each, "title"), _text(each, "url"), _text(each, "content")) for each in _results(answer)
    ]


def _results(answer: Any) -> Sequence[dict[str, Any]]:
    rows = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise NoAnswer("answered without a list of results")
    return [each for each in rows if isinstance(each, dict)]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _target(link: str) -> str:
    """Return where a link of the page leads; empty for an advertisement."""
    try:
        parts = urlsplit(f"https:{link}" if link.startswith("//") else link)
    except ValueError:
        return ""
    if not (parts.hostname or "").endswith("duckduckgo.com"):
        return link
    return next(iter(parse_qs(parts.query).get("uddg", ())), "") if parts.path.startswith("/l/") else ""
