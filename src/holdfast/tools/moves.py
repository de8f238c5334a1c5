"""Finds the folders into which the `cd`s of a command lead for certain: they are there, and stay there."""

# ruff: noqa: PTH112, PTH118

from __future__ import annotations

import os

from holdfast.policy.commands import Command, Step, program_of
from holdfast.policy.programs import KNOWN
from holdfast.policy.shell_flow import plain_folder

_MOST = 16
"""How many folders are looked for. After more of them, a `cd` may fail."""
_KEEPS_FOLDERS = frozenset({"add", "commit", "push", "fetch", "tag"})
"""What git does without making or deleting a folder of the workspace."""


def moves(command: Command) -> bool:
    """Return whether a command changes its folder."""
    return any(program_of(step.command) in ("cd", "pushd") for step in command.simple)


def folders_there(command: Command, workspace: str) -> frozenset[str]:
    """Return the folders, from the workspace; the first one is empty. Not one, if that is not clear."""
    if command.unread or "CDPATH" in command.text:
        return frozenset()
    there = {"": None}
    for target in _targets(command):
        for base in tuple(there):
            folder = plain_folder(f"{base}/{target}" if base else target)
            if len(there) <= _MOST and folder not in there and _is_plain(folder, workspace):
                there[folder] = None
    folders = frozenset(there)
    if any(_may_take_away(step, folders, workspace) for step in command.simple):
        return frozenset()
    return folders


def _targets(command: Command) -> list[str]:
    found = [
        word.text
        for step in command.simple
        if program_of(step.command) in ("cd", "pushd")
        for word in step.command.words[1:]
        if word.is_known and not word.is_glob and word.text[:1] not in ("", "/", "-", "~")
    ]
    return [*dict.fromkeys(found)][:_MOST]


def _is_plain(folder: str, workspace: str) -> bool:
    """Return whether a folder is in the workspace, may be entered, and no link leads to it."""
    path = os.path.join(workspace, folder)
    if folder[:2] == ".." or not os.path.isdir(path) or os.path.realpath(path) != path:
        return False
    return os.access(path, os.X_OK)


def _may_take_away(step: Step, folders: frozenset[str], workspace: str) -> bool:
    """Return whether a command may move, delete or lock one of the folders, as far as a table tells. A program that
    nobody knows could as well do directly what a failing `cd` would make possible.
    """
    command, uses = step
    program = program_of(command)
    if uses.asks and program in KNOWN and not (program == "git" and _KEEPS_FOLDERS & {*command.texts[1:2]}):
        return True
    for use in uses.files:
        if use.access == "read":
            continue
        if not use.word.is_known or use.word.is_glob:
            return True
        for base in command.folders:
            path = os.path.normpath(os.path.join(workspace, base, use.word.text))
            if any(
                f"{os.path.join(workspace, folder)}/".startswith(f"{path}/") for folder in folders if folder
            ):
                return True
    return False
