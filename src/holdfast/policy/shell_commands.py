"""Reads one simple command: its words, its variables and its redirections, and what lies between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast.policy.shell_flow import Flow, Variables
from holdfast.policy.shell_input import document_of
from holdfast.policy.shell_plain import RESERVED
from holdfast.policy.shell_text import MAX_COMMANDS, MAX_WORDS, TOO_MANY, Unreadable
from holdfast.policy.shell_words import WordReader
from holdfast.policy.simple import Redirection, SimpleCommand, Word

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SHOWN = 200
"""How much of a word is kept that is not understood."""
_GAP = re.compile(rb"(?:[ \t\n]|\\\n)*")
ASSIGNED = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SUBSCRIPT = re.compile(r"(?:\s|\\\n)*\[")
_NUMBERED = re.compile(r"\[[0-9]+\]\+?=")
_LITERAL_FILE = re.compile(r"[A-Za-z0-9_./-]+", re.ASCII)
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_FILE_OPERATORS = frozenset({"<", ">", ">>", "&>", "&>>", ">|", ">&", "<&", "<<<"})
REDIRECTIONS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})


class Enough(Exception):
    """The text has more than is read. The message says what."""


class Unit(NamedTuple):
    """A statement with its redirections, and the words that follow them."""

    node: Node | None
    redirections: list[Node]
    words: list[Node]


class CommandReader:
    """Reads the simple commands of one text. `shell` walks what they are part of."""

    def __init__(self, data: bytes, home: str, here: str) -> None:
        self.commands: list[SimpleCommand] = []
        self.unread = ""
        self._data = data
        self._variables = Variables(home, here)
        self._flow = Flow(("",))
        self._functions: list[tuple[int, int]] = []
        """Where the commands of functions begin and end."""
        self._depth = 0
        self._pipes: tuple[int, ...] = ()
        self._pipelines = 0
        """How many pipelines were read."""
        self._words_left = MAX_WORDS
        self._words = WordReader(
            data,
            self._variables.value,
            run=self._run_for_words,
            opaque=lambda text: self._emit(SimpleCommand((Word(text, is_known=False),))),
            budget=[4 * len(data) + 65_536],
        )

    def _run_within(self, node: Node) -> None:
        """Walk what the shell runs to make a word."""
        raise NotImplementedError

    def _run_for_words(self, node: Node) -> None:
        with self._piped(0):
            self._run_within(node)

    @contextmanager
    def _piped(self, number: int) -> Iterator[None]:
        """Note that the commands which are read within are a part of a pipeline."""
        before = self._pipes
        self._pipes = before if number in before else (*before, number)
        try:
            yield
        finally:
            self._pipes = before

    def _note(self, reason: str) -> None:
        self.unread = self.unread or reason

    def _emit(self, command: SimpleCommand) -> None:
        self._words_left -= 1 + len(command.words) + len(command.redirections)
        if len(self.commands) >= MAX_COMMANDS or self._words_left < 0:
            raise Enough(TOO_MANY)
        folders, is_known, _ = self._flow
        if folders != ("",) or not is_known:
            command = command._replace(folders=folders, is_folder_known=is_known)
        if self._pipes:
            command = command._replace(pipes=self._pipes)
        self.commands.append(command)

    def _children(self, node: Node) -> list[Node]:
        """Return the children, after a look at what lies between them."""
        children = node.children
        end = node.start_byte
        for child in children:
            if child.start_byte != end:
                self._check_gap(end, child.start_byte)
            end = child.end_byte
        if end != node.end_byte:
            self._check_gap(end, node.end_byte)
        return children

    def _check_gap(self, start: int, end: int) -> None:
        if not _GAP.fullmatch(self._data, start, end):
            self._note("it has an unusual character between its words")

    def _check_words(self, nodes: Sequence[Node]) -> None:
        """Note words of one command that do not have blanks between them, on one line."""
        end = -1
        for node in nodes:
            if end >= 0:
                gap = self._data[end : node.start_byte]
                if not gap and self._data[end - 1 : end] == b"}" and node.type in REDIRECTIONS:
                    self._note("a redirection may set a variable")  # `{NAME}> file`
                if gap != b" ":
                    plain = gap.replace(b"\\\n", b"")
                    if b"\n" in plain or plain.strip(b" \t") or not (plain or self._may_touch(node, end)):
                        self._note("two of its words touch, or one is broken")
            end = node.end_byte

    def _may_touch(self, node: Node, end: int) -> bool:
        """Return whether a part may follow another without a blank: a redirection, or what follows an operator."""
        return (
            node.type in ("file_redirect", "herestring_redirect", "heredoc_redirect")
            and node.start_byte <= end
        )

    def _emit_command(self, node: Node, unit: Unit) -> tuple[Word, ...]:
        children = node.children
        words: list[Word] = []
        assigned: list[tuple[str, Word]] = []
        redirected: list[Node] = []
        for child in children:
            kind = child.type
            if kind == "command_name":
                words += self._name_of(child)
            elif kind == "variable_assignment":
                assigned += self._assignment(child)
            elif kind in REDIRECTIONS:
                redirected.append(child)
            else:
                words += self._argument(child)
        if len(words) > 1 and words[0].text == "time" and ASSIGNED.match(words[1].text):
            self._note("it has a variable after `time`")  # the tree takes `time` for a program
        self._check_words([*children, *unit.redirections, *unit.words])
        redirections: tuple[Redirection, ...] = ()
        if redirected or unit.redirections:
            redirections, more = self._redirections([*redirected, *unit.redirections])
            for extra in (*more, *unit.words):
                words += self._argument(extra)
        command = SimpleCommand(tuple(words), tuple(assigned), redirections)
        self._emit(command)
        return command.words

    def _name_of(self, node: Node) -> Sequence[Word]:
        children = node.children
        if len(children) != 1:
            self._note("the name of a program is not understood")
            return [Word(self._words.text(node), is_known=False)]
        if self._words.text(node) in RESERVED:
            self._note(f"it has `{self._words.text(node)}` where a program should be")
        return self._argument(children[0])

    def _argument(self, node: Node) -> Sequence[Word]:
        """Return the words that an argument becomes. One that is not understood is not known."""
        try:
            return self._words.words(node)
        except Unreadable as error:
            return self._unread_word(node, error)

    def _value(self, node: Node) -> Word:
        try:
            return self._words.value(node)
        except Unreadable as error:
            return self._unread_word(node, error)[0]

    def _unread_word(self, node: Node, error: Unreadable) -> list[Word]:
        self._note(str(error))
        return [Word(self._words.text(node)[:MAX_SHOWN], is_known=False)]

    def _assignment(self, node: Node) -> list[tuple[str, Word]]:
        """Return the variable that an assignment sets, and set it."""
        children = self._children(node)
        name = self._words.text(children[0])
        operator = children[1].type if len(children) > 1 else ""
        value = Word("")
        if len(children) > 2:
            if children[2].type == "array":
                values = [word.text for each in children[2].children[1:-1] for word in self._element(each)]
                value = Word(",".join(values), is_known=False)  # each of them may be a file
            else:
                value = self._value(children[2])
        if not NAME.fullmatch(name) or operator != "=" or len(children) > 3:
            self._run_within(children[0])
            self._emit(SimpleCommand((Word(self._words.text(node)[:MAX_SHOWN], is_known=False),)))
            value = value._replace(is_known=False)
        return [(name, value)]

    def _element(self, node: Node) -> Sequence[Word]:
        """Return a value of an array. What is between brackets in front of one is counted out, and may run code."""
        text = self._words.text(node)
        words = self._argument(node)
        if _SUBSCRIPT.match(text) and not _NUMBERED.match(text):
            self._emit(SimpleCommand((Word(text[:MAX_SHOWN], is_known=False),)))
        return words

    def _target(self, node: Node) -> Word:
        """Return the file of a redirection. Braces in it are written out, and must stand for one word."""
        if b"{" not in self._data[node.start_byte : node.end_byte]:
            return self._value(node)
        words = self._argument(node)
        if len(words) != 1:
            self._note("a redirection has several files")
            return self._value(node)
        return words[0]

    def _redirections(self, nodes: Sequence[Node]) -> tuple[tuple[Redirection, ...], list[Node]]:
        """Return the redirections, and the nodes of further words that the tree counts to them."""
        found: list[Redirection] = []
        more: list[Node] = []
        for node in nodes:
            if node.type == "heredoc_redirect":
                try:
                    found.append(Redirection("<<", document_of(node, self._data, self._words)))
                except Unreadable as error:
                    self._note(str(error))
                continue
            parts = [child for child in self._children(node) if child.type != "file_descriptor"]
            operator, targets = parts[0].type, parts[1:]
            if operator in (">&-", "<&-") and not targets:
                continue
            if operator not in _FILE_OPERATORS or not targets:
                self._note("it has a redirection that is not understood")
                more += targets
                continue
            target = self._value(targets[0]) if operator == "<<<" else self._target(targets[0])
            if operator in (">&", "<&") and not _LITERAL_FILE.fullmatch(self._words.text(targets[0])):
                self._note(
                    "the shell expands what follows `>&` twice"
                )  # it runs the program in `>& '$(./x)'`
            self._check_words(targets)
            more += targets[1:]
            if operator in (">&", "<&") and _DESCRIPTOR.fullmatch(target.text):
                continue
            found.append(Redirection(operator, target))
        return tuple(found), more
