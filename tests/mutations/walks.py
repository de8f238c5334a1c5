"""Lines that keep file tools inside the workspace while links are swapped. Joined in `table`."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_SWAPS = "tests/tools/test_swapped_links.py::test_no_file_tool_leaves_the_workspace_while_links_are_swapped"

WALKS = (
    Mutation(
        "a walk follows a link that takes the place of a folder",
        "tools/workspace.py",
        "_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW |",
        "_FOLDER = os.O_DIRECTORY |",
        _SWAPS,
    ),
    Mutation(
        "a link that takes the place of a file is read",
        "tools/workspace.py",
        "_READ = os.O_RDONLY | os.O_NOFOLLOW |",
        "_READ = os.O_RDONLY |",
        _SWAPS,
    ),
    Mutation(
        "a link that takes the place of a folder is listed",
        "tools/workspace.py",
        "flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        _SWAPS,
    ),
    Mutation(
        "a link that takes the place of a folder is searched",
        "tools/grep_child.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
        "os.O_RDONLY | os.O_DIRECTORY",
        _SWAPS,
    ),
    Mutation(
        "a link that takes the place of a file is searched",
        "tools/grep_child.py",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_RDONLY | os.O_NONBLOCK",
        _SWAPS,
    ),
)
