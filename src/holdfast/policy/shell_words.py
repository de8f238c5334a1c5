"""Decodes the words of a shell text: quotes, escapes, braces, `~` and the variables that are known.

The syntax tree says where a word begins and ends and what is in it. Each part is then read again by the shell's own
rules, because the tree takes some texts for something else. What does not agree is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.policy.shell_braces import expanded_braces
from holdfast.policy.shell_guess import guess
from holdfast.policy.shell_text import Unreadable
from holdfast.policy.simple import OWN_PIPE, Found, Piece, Word
from holdfast.redact import begin_of

if TYPE_CHECKING:
    from tree_sitter import Node

PLAIN = re.compile(rb"[A-Za-z0-9_./@%+:,-][A-Za-z0-9_./@%+:,=^~#-]*")
"""A word that the shell takes as it is, except for a `~` after `:` or `=`."""
LITERAL = re.compile(r"""[A-Za-z0-9_@%+=:,./-]+|'[^'\n]*'|"[^"\n$`\\!]*\"""", re.ASCII)
"""A word in which nothing has a meaning."""
_RAW = re.compile(r"""\\(.)|([^\\\s|&;()<>'"`$]+)|(.)""", re.DOTALL)
_IN_QUOTES = re.compile(
    r"""\\([$`"\\])|\\(\n)|(\\[^$`"\\\n]|[^"\\`$]+)|(\$)(?![A-Za-z0-9_@*#?$!({\[-])|(.)""", re.DOTALL
)
_ANSI = re.compile(
    r"""\\(?:([abeEfnrtv\\'"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8}))|([^\\']+)|(.)""",
    re.DOTALL,
)
_ANSI_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_SPECIAL = re.compile(r"\$(?:[0-9@*#?$!-]|\{[0-9@*#?$!-]+\})", re.ASCII)
_HARMLESS = re.compile(
    r"\$\{#?(?:[A-Za-z_]\w*|[0-9]+|[@*])(?:\[(?:[0-9]+|[@*])\])?"
    r"(?::?[-+?][\w ./,:=-]*|(?:##?|%%?|//?)[\w ./,:*?=-]*|:[0-9]+(?::[0-9]+)?|\^\^?|,,?)?\}",
    re.ASCII,
)
"""An expansion that runs nothing, sets nothing and counts nothing out, whatever its variable contains."""
NUMBERS = re.compile(r"[0-9\s+*/%()<>=!&|^~,?:-]*", re.ASCII)
"""Arithmetic without names: a name's value may contain a command."""
_SPLITS = re.compile(r"[\s*?\[\\]")
_IFS = re.compile(r"[ \t\n]+")
_GLOB_OR_ESCAPE = re.compile(r"[*?\[\\]")
_GLOB = re.compile(r"[*?\[]")
_MATCHES = re.compile(r"(?:[\w.][\w.-]*/(?:[\w.-]+/)*)?((?!-)[\w.+-]*[*?][\w.+*?-]*)", re.ASCII)
"""A value that the shell replaces by names in a folder. `named` sees whether one looks like an option."""
_NAME = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_SETS = re.compile(r"=|\+\+|--")
"""What may set a variable in arithmetic."""
_HERE = re.compile(r"\$\( *(?:pwd(?: -[LP])?|git rev-parse --show-toplevel) *\)|` *pwd *`")
"""What a shell most likely replaces by its folder, or by the folder of the repository."""
_TILDE = re.compile(r"~(?=/|\Z)")
_LATER_TILDE = re.compile(r"[:=]~")

_IN_DOCUMENT = re.compile(_IN_QUOTES.pattern.replace('"', ""), re.DOTALL)

_AFTER_DOLLAR = (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b")", b"/", b".", b",", b"%", b"=", b":", b"+")
"""What may follow a `$` that stands for itself."""


class WordReader:
    """Reads the words of one text."""

    def __init__(
        self,
        data: bytes,
        value_of: Callable[[str], Word | None],
        run: Callable[[Node], None],
        opaque: Callable[[str], None],
        budget: list[int],
    ) -> None:
        """Make one.

        Args:
            data: The text.
            value_of: Returns the value of a variable, if it is known.
            run: Is called with each node that the shell runs to make a word.
            opaque: Is called with each part of the text that may run something which does not show.
            budget: How many more characters words may have. It is counted down.
        """
        self._data = data
        self._value_of = value_of
        self._run = run
        self._opaque = opaque
        self._budget = budget

    def text(self, node: Node) -> str:
        """Return what is written."""
        return self._data[node.start_byte : node.end_byte].decode(errors="replace")

    def words(self, node: Node) -> Sequence[Word]:
        """Return the words that an argument becomes: several if it has braces.

        Raises:
            Unreadable: it is not understood.
        """
        raw = self._data[node.start_byte : node.end_byte]
        if PLAIN.fullmatch(raw) and b"~" not in raw:
            return (Word(raw.decode()),)
        pieces = self._pieces(node)
        if len(pieces) == 1 and pieces[0].kind == "split" and not _GLOB_OR_ESCAPE.search(pieces[0].text):
            return [Word(text, is_range=pieces[0].is_range) for text in _IFS.split(pieces[0].text) if text]
        if len(pieces) == 1 and pieces[0].kind == "split" and (matched := _MATCHES.fullmatch(pieces[0].text)):
            found = Found((matched[1].casefold(),), is_split=True)
            return (Word(pieces[0].text, is_known=False, is_glob=True, found=found),)
        if any(piece.kind == "raw" and "{" in piece.text for piece in pieces):
            every = expanded_braces(pieces, self._budget)
            return [
                self._joined(each)
                for each in every
                if any(piece.text or piece.kind == "quoted" for piece in each)
            ]
        return (self._joined(pieces),)

    def value(self, node: Node) -> Word:
        """Return a word where the shell expands no braces and matches no names: an assignment or a redirection.

        Raises:
            Unreadable: it is not understood.
        """
        return self._joined(self._pieces(node))

    def _pieces(self, node: Node) -> list[Piece]:
        kind = node.type
        if kind == "concatenation":
            return self._concatenated(node)
        if kind in _READERS:
            return _READERS[kind](self, node)
        if (
            kind == "$"
            and self.text(node) == "$"
            and self._data[node.end_byte : node.end_byte + 1] in _AFTER_DOLLAR
        ):
            return [Piece("$", "raw")]
        raise Unreadable(f"it has a part that is not understood: {begin_of(self.text(node), 40)}")

    def _concatenated(self, node: Node) -> list[Piece]:
        pieces: list[Piece] = []
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                raise Unreadable("the parts of a word do not fit together")
            pieces += self._pieces(child)
            end = child.end_byte
        return pieces

    def _raw(self, node: Node) -> list[Piece]:
        return list(raw_pieces(self.text(node)))

    def _single(self, node: Node) -> list[Piece]:
        text = self.text(node)
        if len(text) < 2 or text[0] + text[-1] != "''" or "'" in text[1:-1]:
            raise Unreadable("a quote is not closed")
        return [Piece(text[1:-1], "quoted")]

    def _ansi(self, node: Node) -> list[Piece]:
        return [Piece(ansi_c(self.text(node)), "quoted")]

    def _double(self, node: Node) -> list[Piece]:
        children = node.children
        if (
            len(children) < 2
            or children[0].type != '"'
            or children[-1].type != '"'
            or children[0].start_byte != node.start_byte
            or self._data[node.end_byte - 1 : node.end_byte] != b'"'
        ):
            raise Unreadable("a quote is not closed")
        return self.quoted_pieces(node.children[1:-1], children[0].end_byte, node.end_byte - 1)

    def quoted_pieces(
        self, children: Iterable[Node], start: int, end: int, *, is_document: bool = False
    ) -> list[Piece]:
        """Return the parts between double quotes, or of a document whose delimiter has no quotes.

        Raises:
            Unreadable: one is not understood.
        """
        pieces: list[Piece] = [Piece("", "quoted")]
        for child in children:
            text = self.text(child)
            shown = text.lstrip()  # the tree counts the blanks before a `$` to it
            if child.type in _EXPANSIONS and not shown[1:2].isspace():
                begin = child.start_byte + len(text.encode()) - len(shown.encode())
                pieces.append(self._chunk(start, begin, len(pieces), is_document=is_document))
                for each in self._expansion(child, is_quoted=True):
                    pieces.append(each._replace(kind="quoted") if each.kind == "raw" else each)
                start = child.end_byte
            elif child.type not in (*_EXPANSIONS, "string_content", "heredoc_content", "$", "`"):
                raise Unreadable(f"it has a part that is not understood: {begin_of(text, 40)}")
        pieces.append(self._chunk(start, end, len(pieces), is_document=is_document))
        return pieces

    def _chunk(self, start: int, end: int, count: int, *, is_document: bool) -> Piece:
        text = self._data[start:end].decode(errors="replace")
        if count > 1 and text.startswith("\\\n"):
            raise Unreadable("a line is broken inside a variable")
        return Piece(in_quotes(text, is_document=is_document), "quoted")

    def _unquoted_expansion(self, node: Node) -> list[Piece]:
        return self._expansion(node, is_quoted=False)

    def _expansion(self, node: Node, *, is_quoted: bool) -> list[Piece]:
        text = self.text(node).lstrip()
        shown = text if len(text) <= 40 and "/" not in text else "$(...)"
        kind = node.type
        if kind in ("command_substitution", "process_substitution"):
            self._run(node)
            if kind == "process_substitution":
                return [Piece(OWN_PIPE, "quoted")]
            return [Piece("." if _HERE.fullmatch(text) else shown, "unknown")]
        if found := _VARIABLE.fullmatch(text):
            piece = self._variable(found[1] or found[2], text, is_quoted=is_quoted)
            return [piece._replace(is_open=found[1] is not None and not is_quoted)]
        if kind == "simple_expansion" and not _SPECIAL.fullmatch(text):
            raise Unreadable(f"it has a variable that is not understood: {begin_of(text, 40)}")
        is_harmless = _HARMLESS.fullmatch(text) or _SPECIAL.fullmatch(text)
        if kind == "arithmetic_expansion":
            is_harmless = NUMBERS.fullmatch(self._counted(text[3:-2])) if text.startswith("$((") else None
        if not is_harmless:
            self._run(node)
            self._opaque(text)
        guessed = guess(text, self._value_of) if text.startswith("${") else ""
        return [Piece(guessed or shown, "unknown")]

    def _counted(self, text: str) -> str:
        """Return arithmetic with the numbers that its names are known to be. It must not set any of them."""
        if _SETS.search(text):
            return text
        return _NAME.sub(lambda name: self._number(name[0]), text)

    def _number(self, name: str) -> str:
        value = self._value_of(name)
        is_number = value is not None and value.is_known and _NUMBER.fullmatch(value.text)
        return value.text if value is not None and is_number else name

    def _variable(self, name: str, text: str, *, is_quoted: bool) -> Piece:
        value = self._value_of(name)
        if value is None or not value.is_known:
            return Piece("." if name == "OLDPWD" else text, "unknown")
        if is_quoted or (value.text and not value.is_glob and not _SPLITS.search(value.text)):
            return Piece(value.text, "glob" if value.is_glob else "quoted", is_range=value.is_range)
        return Piece(value.text, "split", is_range=value.is_range)

    def _joined(self, pieces: Sequence[Piece]) -> Word:
        text = "".join([piece.text for piece in pieces])
        self._budget[0] -= len(text)
        if self._budget[0] < 0:
            raise Unreadable("its words are too long when they are written out")
        is_known = all(piece.kind not in ("unknown", "split") for piece in pieces)
        is_glob = False
        for piece in pieces:
            if piece.kind in ("raw", "glob", "split") and _GLOB.search(piece.text):
                is_glob = True
        if is_glob and any(piece.kind == "quoted" and _GLOB.search(piece.text) for piece in pieces):
            is_known = False
        if pieces and pieces[0].kind == "raw" and pieces[0].text.startswith("~"):
            home = self._value_of("HOME")
            if _TILDE.match(text) and (len(pieces) == 1 or "/" in pieces[0].text) and home and home.is_known:
                text = home.text + text[1:]
            else:
                is_known = False
        if "~" in text and any(piece.kind == "raw" and _LATER_TILDE.search(piece.text) for piece in pieces):
            is_known = False
        return Word(text, is_known, is_glob, any(piece.is_range for piece in pieces))


def raw_pieces(text: str) -> Iterator[Piece]:
    """Return the parts of a text outside of quotes.

    Raises:
        Unreadable: it has a character that ends a word.
    """
    for escaped, plain, other in _RAW.findall(text):
        if plain:
            yield Piece(plain, "raw")
        elif other or escaped in ("", "\n"):
            raise Unreadable("a word is broken by an unusual character")
        else:
            yield Piece(escaped, "quoted")


def in_quotes(text: str, *, is_document: bool = False) -> str:
    """Return a text between double quotes, without its escapes. In a document, double quotes have no meaning.

    Raises:
        Unreadable: something in it is expanded.
    """
    if "\\" not in text and "$" not in text and "`" not in text and (is_document or '"' not in text):
        return text
    found: list[str] = []
    for escaped, broken, plain, dollar, other in (_IN_DOCUMENT if is_document else _IN_QUOTES).findall(text):
        if other:
            raise Unreadable("something in quotes is not understood")
        found.append(escaped or plain or dollar or broken[:0])
        if broken and found[-2:-1] == ["$"]:
            raise Unreadable("a line is broken after `$`")
    return "".join(found)


def ansi_c(text: str) -> str:
    """Return the text of `$'...'`.

    Raises:
        Unreadable: an escape in it is not understood.
    """
    if not (text.startswith("$'") and text.endswith("'") and len(text) > 2):
        raise Unreadable("a quote is not closed")
    found: list[str] = []
    for known, octal, hexadecimal, short, long, plain, other in _ANSI.findall(text[2:-1]):
        code = int(octal, 8) & 0xFF if octal else int(hexadecimal or short or long or "0", 16)
        if other or (not known and not plain and (code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000)):
            raise Unreadable("an escape in `$'...'` is not understood")
        if (octal or hexadecimal) and code > 0x7F:
            raise Unreadable("a byte in `$'...'` is not understood")
        found.append(plain or _ANSI_ESCAPES.get(known, known) or chr(code))
    return "".join(found)


_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
_READERS: Mapping[str, Callable[[WordReader, Any], list[Piece]]] = {
    "word": WordReader._raw,
    "number": WordReader._raw,
    "variable_name": WordReader._raw,
    "brace_expression": WordReader._raw,
    "raw_string": WordReader._single,
    "ansi_c_string": WordReader._ansi,
    "string": WordReader._double,
    **dict.fromkeys([*_EXPANSIONS, "process_substitution"], WordReader._unquoted_expansion),
}
"""The kinds of parts that are understood."""
