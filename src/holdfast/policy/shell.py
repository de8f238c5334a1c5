"""Reads a shell text into its simple commands: a plain one by a pattern, others by the tree of tree-sitter-bash.

Only kinds of nodes that this module names are understood. Between the parts of a command only blanks may lie. The
tree ranks `&&`, `|` and redirections in its own way, so they are taken in the order of the text.

A `cd` counts for what follows. When in doubt, a command may run in the folder before the `cd` and in the one after.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.policy.shell_commands import (
    NAME,
    REDIRECTIONS,
    CommandReader,
    Enough,
    Unit,
)
from holdfast.policy.shell_flow import (
    MAX_FOLDERS,
    START,
    Flow,
    Ways,
    declared_by,
    runs_later,
    sets_variables,
    ways_of,
)
from holdfast.policy.shell_input import after_document, ends_of_documents
from holdfast.policy.shell_plain import RESERVED, plain_script
from holdfast.policy.shell_text import Unreadable, encoded, hidden_in, tree_of
from holdfast.policy.shell_words import LITERAL, NUMBERS, PLAIN
from holdfast.policy.simple import Script, SimpleCommand, Word, fed
from holdfast.redact import begin_of

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 24
_WIDE = 200
"""A longer run of blanks would push what follows out of sight of the person who approves."""

_WIDE_GAP = re.compile(rb"[ \t]{%d}|\n{%d}" % (_WIDE, _WIDE))
_MOVES = re.compile(rb"cd|pushd|popd|eval|source|\.[ \t]")
_NOT_FUNCTIONS = RESERVED | frozenset({
    "cd", "pushd", "popd", "eval", "source", ".", "command", "builtin", "exec", "export", "declare", "typeset",
    "local", "readonly", "unset", "set", "trap", "alias", "hash", "read", "printf", "echo", "test", "[", "true",
    "false", ":", "exit", "return", "time",
})  # fmt: skip
"""Names whose meaning this module relies on, or others do."""
_OPERATORS = frozenset({"&&", "||", "|", "|&", "!"})
_ENDS = frozenset({";", "\n", "&"})
_WORDS_OF_SHELL = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "(", ")", "$(", "`", "<(", ">(",
    ";;", ";&", ";;&",
})  # fmt: skip
_SPLITTING = "it changes where the shell splits words"
_OPENINGS = (b"$(", b"`", b"<(", b">(")
_TESTS = frozenset(
    {"binary_expression", "unary_expression", "negated_expression", "parenthesized_expression"}
)
_TEST_OPERATORS: Mapping[str, frozenset[str]] = {
    "[": frozenset({"[", "]", "!", "=", "==", "!=", "=~"}),
    "[[": frozenset({"[[", "]]", "!", "=", "==", "!=", "=~", "<", ">", "&&", "||", "(", ")"}),
}
"""What bash takes for a part of a test. In `[ ... ]`, `||`, `|`, `&` and `>` mean what they mean everywhere."""
_PATTERN = re.compile(r"(?:[^\s`$;&<>'\"\\#]|\\[^\s])*+\$?")
"""A pattern or a regular expression in which nothing is expanded, and after which the tree and bash agree."""
_PATTERNS = frozenset({"regex", "extglob_pattern"})
_INLINE = frozenset({"list", "pipeline", "redirected_statement", "negated_command"})


def read_script(text: str, home: str = "", here: str = "", start: Flow = START) -> Script:
    """Read a shell text.

    Args:
        text: What a shell would run.
        home: The folder that `~` and `$HOME` mean; empty if it is not known.
        here: The folder that `$PWD` means; empty if it is not known.
        start: Where it may run, from the `cd`s before.
    """
    hidden = hidden_in(text)
    try:
        data = encoded(text)
    except Unreadable as error:
        return Script((), str(error), hidden)
    if not hidden and (plain := plain_script(text, home, start)) is not None:
        return plain
    return by_tree(data, home, here, start)._replace(hidden=hidden)


def by_tree(data: bytes, home: str = "", here: str = "", start: Flow = START) -> Script:
    """Read a shell text by its syntax tree."""
    try:
        root = tree_of(data)
    except Unreadable as error:
        return Script((), str(error))
    reader = _Reader(data, home, here)
    after = reader.read(root, start)
    return Script(tuple(reader.commands), reader.unread, ends=after.folders)


class _Reader(CommandReader):
    """Walks the tree of one text."""

    def read(self, root: Node, flow: Flow) -> Flow:
        """Read everything. Return where it ends."""
        if _WIDE_GAP.search(self._data):
            self._note("it has a long run of blanks, which would hide what follows")
        if root.has_error:
            self._note("it does not follow the grammar of a shell")
        try:
            nodes = root.children
            self._check_gap(0, nodes[0].start_byte if nodes else len(self._data))
            self._check_gap(nodes[-1].end_byte if nodes else 0, len(self._data))
            flow = self._statements(self._children(root), flow)
            self._move_functions()
        except Enough as error:
            self._note(str(error))
        return flow

    def _move_functions(self) -> None:
        """Let the commands of functions run wherever a command may run: a call is in another place."""
        if self._functions and not all(command.is_folder_known for command in self.commands):
            folders = list(dict.fromkeys(each for command in self.commands for each in command.folders))
            for start, end in self._functions:
                self.commands[start:end] = [_moved(each, folders) for each in self.commands[start:end]]

    # --- statements -----------------------------------------------------------------------------------

    def _statements(self, nodes: Sequence[Node], flow: Flow) -> Flow:
        """Walk statements that follow each other."""
        for at, node in enumerate(nodes):
            kind = node.type
            if kind in _ENDS or kind in _WORDS_OF_SHELL:
                continue
            if kind == "comment":
                self._check_comment(node)
            elif at + 1 < len(nodes) and nodes[at + 1].type == "&":
                with self._variables.apart():
                    self._statement(node, flow)
            else:
                flow = self._statement(node, flow).either
        return flow

    def _check_comment(self, node: Node) -> None:
        before = self._data[max(node.start_byte - 2, 0) : node.start_byte]
        if (
            before[-1:].strip(b" \t\n;&|(")
            or before == b"\\\n"
            or b"\n" in self._data[node.start_byte : node.end_byte]
        ):
            self._note("it has a `#` that is not understood")

    def _statement(self, node: Node, flow: Flow) -> Ways:
        """Walk a statement: pipelines with `&&` and `||` between them."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Enough("it is nested too deeply")
        ways, operator, units, is_negated = Ways(flow, flow), "", list[Unit](), False
        for part in (*self._parts(node), None):
            kind = part.type if part is not None else ""
            if part is None or kind in ("&&", "||"):
                found = self._pipeline(units, ways.entry(operator), is_conditional=bool(operator))
                found = Ways(found.either, found.either) if is_negated else found
                ways = ways.then(found, operator)
                operator, units, is_negated = kind, [], False
            elif part is not None and kind == "!":
                is_negated = True
                if self._data[part.end_byte : part.end_byte + 1] not in (b" ", b"\t"):
                    self._note("it has a `!` that is not understood")
            elif kind in ("|", "|&"):
                units.append(Unit(None, [], []))
            else:
                self._add_part(part, units)
        self._depth -= 1
        return ways

    def _add_part(self, part: Node, units: list[Unit]) -> None:
        """Add a statement, a redirection or a further word to the units of a pipeline."""
        if part.type in _STATEMENTS:
            if units and units[-1] == Unit(None, [], []):
                units.pop()
            units.append(Unit(part, [], []))
            return
        if not units:
            units.append(Unit(None, [], []))
        (units[-1].redirections if part.type in REDIRECTIONS else units[-1].words).append(part)

    def _parts(self, node: Node) -> Iterator[Node]:
        """Return the operators, statements, redirections and further words of a list, in the order of the text."""
        stack = [node]
        while stack:
            each = stack.pop()
            kind = each.type
            if kind in _INLINE:
                stack.extend(reversed(self._children(each)))
            elif kind == "heredoc_redirect":
                yield each
                stack.extend(reversed(after_document(each)))
            elif kind in _STATEMENTS or kind in _OPERATORS or kind in REDIRECTIONS:
                yield each
            elif kind == "comment":
                self._check_comment(each)
            elif each.is_named and kind != "ERROR":
                yield each
            else:
                self._salvage(each)

    def _salvage(self, node: Node) -> None:
        """Walk the commands in a part that is not understood: what they name is still judged."""
        self._note(f"it has a part that is not understood: {begin_of(self._words.text(node), 40)}")
        stack = [*reversed(node.children)]
        while stack:
            each = stack.pop()
            if each.type in _STATEMENTS:
                self._statement(each, self._flow.lost())
            else:
                stack.extend(reversed(each.children))

    def _pipeline(self, units: Sequence[Unit], flow: Flow, *, is_conditional: bool) -> Ways:
        if not units:
            self._note("it has an operator without a command")
            return Ways(flow, flow)
        if len(units) > 1:
            self._pipelines += 1
            number = self._pipelines
            first = len(self.commands)
            for unit in units:
                with self._variables.apart(), self._piped(number):
                    self._unit(unit, flow)
            is_plain = all(unit.node is not None and unit.node.type == "command" for unit in units)
            if is_plain and len(self.commands) == first + len(units):
                self.commands[first:] = fed(self.commands[first:], self._data)
            return Ways(flow, flow)
        if is_conditional:
            with self._variables.perhaps():
                return self._unit(units[0], flow)
        return self._unit(units[0], flow)

    def _unit(self, unit: Unit, flow: Flow) -> Ways:
        self._flow = flow
        node = unit.node
        if node is not None and node.type == "command":
            return self._command(node, unit, flow)
        if unit.words:
            self._note("it has words after a redirection that are not understood")
        if unit.redirections or node is None:
            redirections, more = self._redirections(unit.redirections)
            if more:
                self._note("it has words after a redirection that are not understood")
            self._emit(SimpleCommand((), (), redirections))
        if node is None:
            return Ways(flow, flow)
        handler: Callable[[_Reader, Node, Flow], Ways] = _STATEMENTS[node.type]
        return handler(self, node, flow)

    # --- simple commands ------------------------------------------------------------------------------

    def _command(self, node: Node, unit: Unit, flow: Flow) -> Ways:
        """Walk a command. With the variable of a loop, it is one command for each value."""
        variables = self._variables
        if not variables.has_loops:
            words = self._emit_command(node, unit)
        else:
            variables.pick, variables.asked = 0, set()
            count, start = 1, len(self.commands)
            words = self._emit_command(node, unit)
            if len(variables.asked) > 1:
                del self.commands[start:]
                variables.pick = None
                words = self._emit_command(node, unit)
            elif variables.asked:
                count = max(map(variables.count, variables.asked))
            for pick in range(1, count):
                variables.pick = pick
                self._emit_command(node, unit)
            variables.pick = None
        self._after_builtin(words)
        home = variables.value("HOME")
        may_fail = bool(unit.redirections or self.commands[-1].assigned)
        ways = ways_of(words, flow.unsure() if may_fail else flow, home.text if home else "")
        if ways.succeeded != flow:
            variables.set("PWD", None)
        for name, _ in self.commands[-1].assigned:
            variables.set(name, None)  # before some builtins it lasts, and in some shells it does not
        return ways

    def _after_builtin(self, words: Sequence[Word]) -> None:
        """Forget the variables that a builtin may have set, and those whose next value it may change."""
        if runs_later(words):
            self._variables.lose()
        elif sets_variables(words):
            self._variables.clear()
            if any(word.text.partition("=")[0].endswith("IFS") for word in words):
                self._note(_SPLITTING)
        for name in declared_by(words):
            self._variables.fix(name)

    def _declaration(self, node: Node, flow: Flow) -> Ways:
        """Walk `export A=b` and its kin."""
        children = self._children(node)
        self._check_words(children)
        words, assigned = [Word(self._words.text(children[0]))], list[tuple[str, Word]]()
        for child in children[1:]:
            if child.type == "variable_assignment":
                name, value = self._assignment(child)[0]
                if "{" in self._words.text(child):
                    value = value._replace(
                        is_known=False
                    )  # braces mean several values, and the last one stays
                assigned.append((name, value))
                words.append(Word(f"{name}={value.text}", value.is_known))
            else:
                words += self._argument(child)
        self._emit(SimpleCommand(tuple(words), tuple(assigned)))
        has_more = len(words) > 1 + len(assigned)
        if has_more or words[0].text not in ("export", "readonly"):
            self._after_builtin(words)
        else:
            self._set(assigned)
            for name in declared_by(words):
                self._variables.fix(name)
        return Ways(flow, flow)

    def _assignments(self, node: Node, flow: Flow) -> Ways:
        """Walk assignments without a command."""
        nodes = [node] if node.type == "variable_assignment" else self._children(node)
        self._check_words(nodes)
        assigned = [each for child in nodes for each in self._assignment(child)]
        self._emit(SimpleCommand((), tuple(assigned)))
        self._set(assigned)
        return Ways(flow, flow)

    def _set(self, assigned: Sequence[tuple[str, Word]]) -> None:
        for name, value in assigned:
            if name == "IFS":
                self._note(_SPLITTING)
            self._variables.set(name, value)

    def _unset(self, node: Node, flow: Flow) -> Ways:
        children = self._children(node)
        self._check_words(children)
        words = [Word(self._words.text(children[0]))]
        for child in children[1:]:
            words += self._argument(child)
        self._emit(SimpleCommand(tuple(words)))
        self._variables.clear()
        return Ways(flow, flow)

    def _test(self, node: Node, flow: Flow) -> Ways:
        """Walk `[ ... ]` and `[[ ... ]]`: a command like others, whose words the tree has put in order."""
        children = self._children(node)
        operators = _TEST_OPERATORS.get(children[0].type, frozenset())
        is_command = children[0].type == "["
        words: list[Word] = []
        leaves: list[Node] = []
        stack = [*reversed(children)]
        while stack:
            each = stack.pop()
            if each.type in _TESTS:
                stack.extend(reversed(self._children(each)))
                continue
            leaves.append(each)
            if each.is_named and each.type != "test_operator":
                words += (
                    [self._pattern(each, is_word=is_command)]
                    if each.type in _PATTERNS
                    else self._argument(each)
                )
                continue
            text = self._words.text(each)
            words.append(Word(text))
            if text not in operators and each.type != "test_operator":
                self._note(f"it has `{begin_of(text, 20)}` in a test, which the shell reads in another way")
        self._check_words([leaf for leaf in leaves if leaf.type not in ("(", ")")])
        self._emit(SimpleCommand(tuple(words)))
        return Ways(flow, flow)

    def _pattern(self, node: Node, *, is_word: bool = False) -> Word:
        """Read a pattern of `case` or of a test.

        Args:
            node: The pattern.
            is_word: Whether the shell reads it as a word of a command.
        """
        text = self._words.text(node)
        is_odd = not _PATTERN.fullmatch(text) or (is_word and not {*"|(){}"}.isdisjoint(text))
        if (is_odd or not _is_balanced(text)) and not LITERAL.fullmatch(text):
            self._note("a pattern has something that is not understood")
            self._run_within(node)
        return Word(text, is_known=bool(PLAIN.fullmatch(text.encode())))

    # --- groups ---------------------------------------------------------------------------------------

    def _group(self, node: Node, flow: Flow) -> Ways:
        """Walk `{ ...; }`, or arithmetic in `((...))`."""
        text = self._words.text(node)
        if text.startswith("(("):
            self._count(node, text[2:-2])
            return Ways(flow, flow)
        if not text[1:2].isspace():
            self._note("it has a `{` that is not understood")
        after = self._statements(self._children(node), flow)
        return Ways(after, after)

    def _count(self, node: Node, text: str) -> None:
        """Note arithmetic: the value of a name in it may run a command."""
        self._run_within(node)
        if not NUMBERS.fullmatch(text):
            self._emit(SimpleCommand((Word("((", is_known=False),)))

    def _subshell(self, node: Node, flow: Flow) -> Ways:
        if self._data.startswith(b"((", node.start_byte):
            self._note("it has `((` that is not arithmetic")
        with self._variables.apart():
            self._statements(self._children(node), flow)
        return Ways(flow, flow)

    def _if(self, node: Node, flow: Flow) -> Ways:
        """Walk `if` and its clauses. Each part may run or not."""
        part: list[Node] = []
        for child in (*self._children(node), None):
            if child is not None and child.type not in ("then", "elif_clause", "else_clause"):
                part.append(child)
                continue
            with self._variables.perhaps():
                flow = flow.merged(self._statements(part, flow))
            part = []
            if child is not None and child.type != "then":
                flow = flow.merged(self._if(child, flow).either)
        return Ways(flow, flow)

    def _while(self, node: Node, flow: Flow) -> Ways:
        return self._loop(self._children(node), flow)

    def _for(self, node: Node, flow: Flow) -> Ways:
        """Walk `for` and `select`. If the values are known, the body is walked for each."""
        children = self._children(node)
        at = next(
            (at for at, child in enumerate(children) if child.type in ("do_group", "compound_statement")),
            None,
        )
        names = [child for child in children if child.type == "variable_name"]
        if at is None or not names:
            self._note("it has a loop that is not understood")
            at = len(children)
        own = ("for", "select", "in", ";", "\n", "comment")
        values = [
            child
            for child in children[:at]
            if child.is_named and child is not names[0] and child.type not in own
        ]
        self._check_words(values)
        words = [word for child in values for word in self._argument(child)]
        name = self._words.text(names[0]) if names else ""
        if self._words.text(children[0]) == "select":
            words.append(Word(""))  # what the variable has if the answer is not one of them
        if not NAME.fullmatch(name) or name in ("HOME", "PWD", "OLDPWD"):
            words = []
        if name == "IFS":
            self._note(_SPLITTING)
        self._flow = flow
        self._emit(SimpleCommand((), ((name, Word("", is_known=False)),)))
        return self._loop(children[at:], flow, name, words)

    def _counting_for(self, node: Node, flow: Flow) -> Ways:
        children = self._children(node)
        at = next((at for at, child in enumerate(children) if child.type == "))"), len(children) - 1)
        for child in children[:at]:
            self._run_within(child)
        self._flow = flow
        self._emit(SimpleCommand((Word("((", is_known=False),)))
        return self._loop(children[at + 1 :], flow)

    def _loop(self, body: Sequence[Node], flow: Flow, name: str = "", values: Sequence[Word] = ()) -> Ways:
        """Walk the body of a loop. If it changes the folder, nobody knows where it runs the next time."""
        start = len(self.commands)
        with self._variables.forgotten():
            if name and values:
                self._variables.loop(name, values)
            after = self._statements(self._bodies(body), flow.unsure())
        after = flow.unsure().merged(after)
        if after == flow.unsure():
            return Ways(flow, flow)
        after = after.lost()
        self.commands[start:] = [_moved(command, after.folders) for command in self.commands[start:]]
        return Ways(after, after)

    def _bodies(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the statements of a loop's body, and of its condition."""
        found: list[Node] = []
        for node in nodes:
            found += self._children(node) if node.type == "do_group" else [node]
        return found

    def _case(self, node: Node, flow: Flow) -> Ways:
        children = self._children(node)
        items = [child for child in children if child.type == "case_item"]
        for child in children:
            if child.is_named and child.type not in ("case_item", "comment"):
                self._argument(child)
        for item in items:
            parts = self._children(item)
            end = next((at for at, part in enumerate(parts) if part.type == ")"), len(parts) - 1)
            for part in parts[:end]:
                if part.is_named:
                    self._flow = flow
                    self._pattern(part) if part.type in _PATTERNS else self._argument(part)
            with self._variables.perhaps():
                flow = flow.merged(self._statements(parts[end + 1 :], flow))
        return Ways(flow, flow)

    def _function(self, node: Node, flow: Flow) -> Ways:
        """Walk the body of a function. Nobody knows where and with what it will be called."""
        children = self._children(node)
        named = [child for child in children if child.is_named and child.type != "comment"]
        name = self._words.text(named[0])
        if name in _NOT_FUNCTIONS or not NAME.fullmatch(name.replace("-", "_")):
            self._note(f"it gives `{begin_of(name, 20)}` another meaning")
        self._emit(SimpleCommand((Word(f"{name}()"),)))
        has_moved = _MOVES.search(self._data) is not None
        inside = flow.lost() if has_moved else flow
        start, after = len(self.commands), inside
        with self._variables.forgotten():
            for child in named[1:]:
                if child.type in REDIRECTIONS:
                    redirections, more = self._redirections([child])
                    self._emit(
                        SimpleCommand(
                            tuple([word for node in more for word in self._argument(node)]), (), redirections
                        )
                    )
                else:
                    after = after.merged(self._statement(child, inside).either)
        self._functions.append((start, len(self.commands)))
        return Ways(after, after)

    # --- what runs inside words -----------------------------------------------------------------------

    def _run_within(self, node: Node) -> None:
        """Walk what the shell runs to make a word. It runs in a shell of its own, in the same folder."""
        flow, stack = self._flow, [node]
        while stack:
            each = stack.pop()
            if each.type not in ("command_substitution", "process_substitution"):
                stack.extend(reversed(each.children))
                continue
            text = self._data[each.start_byte : each.end_byte].lstrip()
            if (
                text.startswith(b"$((")
                or (text.startswith(b"`") and b"\\" in text)
                or not text.startswith(_OPENINGS)
            ):
                self._note("it has a substitution that is not understood")
            if b"<<" in text and any(
                self._data[end : each.end_byte - 1].strip() for end in ends_of_documents(each)
            ):
                self._note("it has commands after a document in a substitution")  # bash 5.2 loses a `;` there
            with self._variables.apart():
                self._statements(self._children(each), flow)
        self._flow = flow


def _is_balanced(text: str) -> bool:
    """Return whether every parenthesis has its partner."""
    depth = 0
    for char in re.sub(r"\\.|\[\^?\]?[^\]]*\]", "", text):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _moved(command: SimpleCommand, folders: Sequence[str]) -> SimpleCommand:
    """Return a command that may also run in other folders."""
    every = tuple(dict.fromkeys((*command.folders, *folders)))[:MAX_FOLDERS]
    return command._replace(folders=every, is_folder_known=False)


_STATEMENTS: Mapping[str, Any] = {
    "command": None,
    "declaration_command": _Reader._declaration,
    "unset_command": _Reader._unset,
    "variable_assignment": _Reader._assignments,
    "variable_assignments": _Reader._assignments,
    "test_command": _Reader._test,
    "compound_statement": _Reader._group,
    "subshell": _Reader._subshell,
    "if_statement": _Reader._if,
    "while_statement": _Reader._while,
    "for_statement": _Reader._for,
    "c_style_for_statement": _Reader._counting_for,
    "case_statement": _Reader._case,
    "function_definition": _Reader._function,
}
"""The kinds of statements that are understood. `_command` walks the first."""
