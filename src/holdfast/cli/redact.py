"""`holdfast redact`: masks the secrets in a text, as Holdfast does before it stores or shows one."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Annotated, Any

import typer

from holdfast.app import redactor_for
from holdfast.cli.batch import answered
from holdfast.cli.config_commands import load_here
from holdfast.cli.options import HomeFlag, JsonFlag, home_of
from holdfast.cli.terminal import say_json
from holdfast.errors import UsageError
from holdfast.redact import Redactor, StreamRedactor

_CHUNK_BYTES = 65_536
_ANY_BYTES = "surrogateescape"
"""Bytes that do not form text leave as they came."""


def redact(
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="FILE", help='One {"text"} per line, as JSON. - reads stdin.'),
    ] = None,
    home: HomeFlag = None,
    is_json: JsonFlag = False,
) -> int:
    """Print what stdin has, with every secret replaced by [redacted:KIND].

    Known secrets are masked too: the keys in the environment, those that the configuration names, and the values in
    this folder's secret files, such as .env. A batch gives
    one {"text", "found"} per line, where `found` has the kind of each secret. A line that is not one {"text"} gives
    {"error"} in its place, and the exit code is 1.

    \b
    holdfast redact < build.log > shown.log
    holdfast redact --batch texts.jsonl --json
    """
    if is_json and batch is None:
        raise UsageError("--json goes with --batch FILE.", hint="`holdfast redact < FILE` prints plain text.")
    redactor = redactor_for(load_here(home), home_of(home), os.environ, ["."])
    if batch is None:
        _copy(StreamRedactor(redactor))
        return 0
    return answered(batch, lambda said: say_json(_row(redactor, said)), is_json=True)


def _copy(stream: StreamRedactor) -> None:
    """Copy stdin to stdout as it comes, so that a text without end has its beginning shown."""
    decoder = codecs.getincrementaldecoder("utf-8")(_ANY_BYTES)
    out = sys.stdout.buffer
    while chunk := os.read(sys.stdin.fileno(), _CHUNK_BYTES):
        out.write(stream.feed(decoder.decode(chunk)).encode("utf-8", _ANY_BYTES))
        out.flush()
    out.write((stream.feed(decoder.decode(b"", final=True)) + stream.flush()).encode("utf-8", _ANY_BYTES))
    out.flush()


def _row(redactor: Redactor, said: Any) -> dict[str, Any]:
    """Return the answer to one line of a batch."""
    if not isinstance(said, dict) or not isinstance(said.get("text"), str):
        raise UsageError('The line is not an object with a "text".')
    text: str = said["text"]
    return {"text": redactor(text), "found": [span.kind for span in redactor.find(text)]}
