"""No tool reads or changes Holdfast's home, or changes its settings, however it is reached."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest

from holdfast.policy.protected import Own
from holdfast.policy.words import PathWord
from holdfast.protocol.settings import Autonomy, changed
from holdfast.protocol.tools import Admission, Allowed, Asked, Refused
from holdfast.tools.builtin import make_tools
from holdfast.tools.function import tool
from holdfast.tools.named import WordFacts
from holdfast.tools.own import OwnPlaces
from holdfast.tools.workspace import PathRefused, Root, open_to_read
from tests.tools.conftest import Bench

JOURNAL = "every session"
KEY = "5e" * 32
BLOB = "blobs/ab/cd/abcd"


@pytest.fixture
def own(tmp_path: Path) -> Own:
    """A home in the workspace, the user's file beside it, the administrator's where nothing is yet."""
    home = tmp_path / "ws" / ".hf"
    (home / BLOB).parent.mkdir(parents=True)
    (home / "holdfast.db").write_text(JOURNAL)
    (home / BLOB).write_text("a long output")
    (tmp_path / "ws" / "config.toml").write_text('model = "x:y"\n')
    (tmp_path / "elsewhere.db").write_text(JOURNAL)
    (home / "old.db").symlink_to(tmp_path / "elsewhere.db")
    return Own(
        (str(home),), (str(tmp_path / "ws" / "config.toml"), str(tmp_path / "ws" / "etc" / "admin.toml"))
    )


def reach_it_otherwise(workspace: Path) -> None:
    """Other ways to the home: links of every kind."""
    (workspace / "folder").symlink_to(".hf")
    (workspace / "far").symlink_to(workspace / ".hf")
    (workspace / "db").symlink_to("folder/holdfast.db")
    (workspace / "settings").symlink_to("config.toml")
    os.link(workspace / ".hf" / "holdfast.db", workspace / "hard")
    os.link(workspace / ".hf" / BLOB, workspace / "blob")


WAYS = [
    ".hf/holdfast.db", ".hf//./holdfast.db", "x/../.hf/holdfast.db", "folder/holdfast.db", "far/holdfast.db", "db",
    "hard", "blob", ".hf/holdfast.db-wal", ".hf/new/file", f".hf/{BLOB}", "{ws}/.hf/holdfast.db", "{ws}/../ws/db",
    ".hf/blobs/../holdfast.db",
]  # fmt: skip


async def rule_of(bench: Bench, name: str, **arguments: Any) -> str:
    """The rule by which the call is refused under every autonomy; `several` or `none` otherwise."""
    rules = set()
    for autonomy in get_args(Autonomy):
        bench.settings = changed(bench.settings, autonomy=autonomy)
        for is_approved in (False, True):
            admission = await bench.admit(name, is_approved=is_approved, **arguments)
            denied = [d.rule for d in admission.decisions if d.verdict == "deny"]
            rules.add(denied[0] if isinstance(admission, Refused) else "none")
    return rules.pop() if len(rules) == 1 else "several"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("way", WAYS)
async def test_no_file_tool_reads_or_changes_the_home(bench: Bench, way: str) -> None:
    reach_it_otherwise(bench.workspace)
    path = way.format(ws=bench.workspace)
    for name, rest in (
        ("read_file", {}),
        ("write_file", {"content": "gone"}),
        ("edit_file", {"old": "every", "new": "no"}),
        ("grep", {"pattern": "session"}),
    ):
        assert await rule_of(bench, name, path=path, **rest) == "own"
        # Also when nobody asked the gates.
        result = await bench.run(name, path=path, **rest)
        assert result.status == "error"
        assert JOURNAL not in result.text
    assert (bench.workspace / ".hf" / "holdfast.db").read_text() == JOURNAL
    assert {path.name for path in (bench.workspace / ".hf").iterdir()} == {"blobs", "holdfast.db", "old.db"}


@pytest.mark.requirement("C12")
async def test_in_a_large_home_the_gates_look_through_a_part_and_who_opens_a_file_through_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach_it_otherwise(bench.workspace)
    for module in ("own", "workspace"):
        monkeypatch.setattr(f"holdfast.tools.{module}.GLANCE_FILES", 2)
    assert await rule_of(bench, "read_file", path="hard") == "own", "the database comes first"
    assert isinstance(await bench.admit("read_file", path="blob"), Allowed)
    assert "own home" in (await bench.run("read_file", path="blob")).text


@pytest.mark.requirement("C12")
async def test_what_has_a_link_in_the_home_belongs_to_it(bench: Bench, tmp_path: Path) -> None:
    bench.settings = changed(bench.settings, workspace=str(tmp_path))
    for path in ("elsewhere.db", "ws/.hf/old.db"):
        assert await rule_of(bench, "write_file", path=path, content="gone") == "own"
        assert await rule_of(bench, "read_file", path=path) == "own"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", ["config.toml", "settings", "etc/admin.toml", "./etc/x/../admin.toml"])
async def test_settings_are_read_and_not_changed(bench: Bench, path: str) -> None:
    reach_it_otherwise(bench.workspace)
    assert await rule_of(bench, "write_file", path=path, content="autonomy = 'full'") == "own"
    assert (await bench.run("write_file", path=path, content="x")).status == "error"
    assert isinstance(await bench.admit("read_file", path=path), Allowed)
    assert (bench.workspace / "config.toml").read_text() == 'model = "x:y"\n'
    assert not (bench.workspace / "etc").exists()


@pytest.mark.requirement("C12")
async def test_searches_pass_over_the_home(bench: Bench) -> None:
    reach_it_otherwise(bench.workspace)
    (bench.workspace / "mine.txt").write_text("every session of mine\n")
    os.link(bench.workspace / "mine.txt", bench.workspace / "mine too.txt")
    found = await bench.call("grep", pattern="session|output")
    assert found.text.splitlines() == [
        "mine too.txt:1: every session of mine",
        "mine.txt:1: every session of mine",
    ]
    assert ".hf/" not in (await bench.call("glob", pattern="**/*")).text
    assert ".hf/" in (await bench.call("list_dir")).text
    for name, rest in (("list_dir", {}), ("glob", {"pattern": "**"}), ("grep", {"pattern": "x"})):
        for path in (".hf", "folder", ".hf/blobs"):
            assert await rule_of(bench, name, path=path, **rest) == "own"
            assert (await bench.run(name, path=path, **rest)).status == "error"


@pytest.mark.requirement("C12")
async def test_a_home_is_known_by_what_it_is_where_its_name_is_another(tmp_path: Path) -> None:
    """As behind a mount, or on a disk that does not care for letter case: another path, the same inode."""
    home = tmp_path / "ws" / "Home"
    home.mkdir(parents=True)
    (home / "holdfast.db").write_text(JOURNAL)
    (tmp_path / "alias").symlink_to(home)
    places = OwnPlaces((str(tmp_path / "alias"),), ())
    with (
        pytest.raises(PathRefused, match="own home"),
        open_to_read(Root(str(tmp_path / "ws"), places), "Home/holdfast.db"),
    ):
        pass
    with pytest.raises(PathRefused, match="own home"), open_to_read(Root(str(home), places), "holdfast.db"):
        pass
    assert places.find(str(home / "x" / "y"), places.identities()) == "home/x/y"
    assert places.find(str(tmp_path / "ws"), places.identities()) == ""


@pytest.mark.requirement("C12")
async def test_a_workspace_inside_the_home_is_out_of_reach_too(bench: Bench, tmp_path: Path) -> None:
    bench.settings = changed(bench.settings, workspace=str(tmp_path / "ws" / ".hf" / "blobs"))
    assert await rule_of(bench, "write_file", path="ab/x", content="") == "own"


@pytest.mark.requirement("C12")
async def test_the_usual_places_of_a_user_may_be_a_workspace(bench: Bench) -> None:
    for name, arguments in (
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("read_file", {"path": "a.txt"}),
    ):
        assert (await bench.call(name, **arguments)).status == "ok"


@pytest.mark.requirement("C12")
async def test_a_tool_of_the_program_is_kept_out_by_the_paths_that_it_declares(
    tmp_path: Path, own: Own
) -> None:
    @tool(effect="write")
    def tidy(where: Annotated[str, "path"]) -> str:
        """Tidy."""
        return where

    tools = make_tools([tidy], secret_in=lambda _: "", own=own)
    bench = Bench(tmp_path / "ws", tools)
    reach_it_otherwise(bench.workspace)
    for way in WAYS:
        assert await rule_of(bench, "tidy", where=way.format(ws=bench.workspace)) == "own"
    assert isinstance(await bench.admit("tidy", where=".vscode/tasks.json"), Refused)
    assert isinstance(await bench.admit("tidy", where="src"), Allowed)
    await tools.aclose()


COMMANDS = [
    "cat .hf/holdfast.db", "cp .hf/holdfast.db /tmp/x", "echo x > .hf/holdfast.db",
    "sqlite3 folder/holdfast.db .dump", "cat db", "cat hard", "rm -rf .hf", "rm -rf ./.h*", "rm -rf .h?/*",
    "cat .hf/*.db", "mv .hf away", "ls .hf", "cd .hf && ls", "cd blobs; cat ../.hf/holdfast.db",
    "cd src && cat ../folder/holdfast.db", "tar cf x.tar .hf", "cat < .hf/holdfast.db",
    "sh -c 'cat .hf/holdfast.db'", "cat {ws}/.hf/holdfast.db", "cat $PWD/.hf/holdfast.db", "cat ${{PWD}}/db",
    "dd if=.hf/holdfast.db of=x", "find . -delete", "chmod -R 000 .", "rm -r {ws}", "rm -rf $PWD/*/../.hf",
    "echo x > config.toml", "sed -i s/supervised/full/ config.toml", "rm -f settings", "cp x config.toml",
    "tee conf*.toml", "mv evil/config.toml .", "mkdir etc && echo x > etc/admin.toml",
    "cd etc; echo x > admin.toml", "rm -rf ../ws", "python x.py --db=.hf/holdfast.db", "x@.hf/holdfast.db",
]  # fmt: skip


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_that_names_the_home_or_writes_settings_is_denied(bench: Bench, command: str) -> None:
    reach_it_otherwise(bench.workspace)
    assert await rule_of(bench, "shell", command=command.format(ws=bench.workspace)) == "own"


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "command",
    ["cat config.toml", "ls -la", "rm -rf build", "echo x > a.txt", "grep -rn x .", "cp a b", "rm -rf b*", "mv a b",
     "git status", "python -m pytest -q", "cat <<'EOF' > x.py\nimport os\nEOF", "ls *", "cd src && make -j4"],
)  # fmt: skip
async def test_an_ordinary_command_beside_the_home_runs(bench: Bench, command: str) -> None:
    reach_it_otherwise(bench.workspace)
    assert isinstance(await bench.admit("shell", command=command), Allowed)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("echo x > .git/hooks/pre-commit", Refused),
        ("cp evil .git/hooks/", Refused),
        ("cd .git && echo x > config", Refused),
        ("cd .git/hooks; cp ../../evil pre-commit", Refused),
        ("echo x >> ~/.bashrc", Refused),
        ("echo x >> $HOME/.profile", Refused),
        ("cp -r other/.vscode .", Refused),
        ("mv other/.envrc .", Refused),
        ("mv .git x", Refused),
        ("rm -rf .GIT", Refused),
        ("tee .claude/settings.json", Refused),
        ("rm .git/hook*", Refused),
        ("ln -s .mcp.json x", Refused),
        ("echo x > hooks/y", Refused),
        ("sed -i s/a/b/ .github/workflows/ci.yml", Asked),
        ("echo x > holdfast.toml", Asked),
        ("git add .vscode .github && cat .bashrc .gitmodules", Allowed),
        ("ls .git/hooks", Allowed),
        ("rm -f .git/index.lock", Asked),  # git keeps it there: another git may be at work
        ("echo x > .git/MERGE_MSG", Allowed),
    ],
)
async def test_a_command_that_writes_what_steers_other_programs_is_denied_or_asked_about(
    bench: Bench, command: str, verdict: type[Admission]
) -> None:
    (bench.workspace / "hooks").symlink_to(".git/hooks")
    assert type(await bench.admit("shell", command=command)) is verdict


@pytest.mark.requirement("C12")
async def test_a_command_with_more_words_than_are_looked_at_is_denied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tools.facts.MAX_WORDS", 100)
    assert isinstance(await bench.admit("shell", command="make " + " ".join(map(str, range(99)))), Allowed)
    assert isinstance(await bench.admit("shell", command="make " + " ".join(map(str, range(100)))), Refused)


@pytest.mark.requirement("L2")
async def test_a_link_that_leads_to_a_file_that_is_asked_about_is_not_written_either_way(
    bench: Bench,
) -> None:
    (bench.workspace / ".github" / "workflows").mkdir(parents=True)
    (bench.workspace / "notes").symlink_to(".github/workflows")
    assert isinstance(await bench.admit("write_file", path=".github/workflows/ci.yml", content=""), Asked)
    assert isinstance(await bench.admit("write_file", path="notes/ci.yml", content=""), Refused)
    assert (await bench.run("write_file", path="notes/ci.yml", content="x")).status == "error"
    assert (await bench.run("write_file", path=".github/workflows/ci.yml", content="x")).status == "ok"
    assert (await bench.run("write_file", path=".vscode/tasks.json", content="x")).status == "error"
    assert not (bench.workspace / ".vscode").exists()


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", ["/x", "//x", "//x/y", "//", "/"])
def test_the_way_up_from_a_path_ends_in_whatever_spelling(tmp_path: Path, path: str) -> None:
    places = OwnPlaces((str(tmp_path),), ())
    with ending_within(5):
        assert places.find(path, places.identities(), "/") == ""
        assert places.find(path, places.identities()) == ""


@pytest.mark.requirement("C12")
def test_the_words_of_a_command_lead_to_plain_paths_where_the_workspace_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    below = str(tmp_path)[1:]
    found = WordFacts("/", OwnPlaces((str(tmp_path / "home"),), ()))
    with ending_within(5):
        found.look_at(
            [
                PathWord(name, access="write")
                for name in (f"{below}/new", f"{below}/a.txt", f"/{below}/home/x")
            ]
        )
    assert [fact.resolved for fact in found.paths] == [
        f"{tmp_path}/new",
        f"{tmp_path}/a.txt",
        f"{tmp_path}/home/x",
    ]
    assert [fact.own for fact in found.paths] == ["", "", "home/x"]


@pytest.mark.requirement("C12")
def test_no_walk_enters_what_the_kernel_shows_as_files() -> None:
    found = WordFacts("/", OwnPlaces())
    found.look_at([PathWord("proc", deep="all"), PathWord("sys/*", is_glob=True)])
    assert (found.unread, found.paths[0].resolved) == ("it looks into /proc", "/proc")


@contextmanager
def ending_within(seconds: int) -> Iterator[None]:
    """Raise what a loop without an end would not."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
async def beside_the_key(tmp_path: Path) -> AsyncIterator[Bench]:
    workspace = tmp_path / "ws"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "sub" / "mykey").write_text(KEY)
    (workspace / "link").symlink_to("sub/mykey")
    os.link(workspace / "sub" / "mykey", workspace / "hard")
    tools = make_tools(secret_in=lambda _: "", own=Own(keys=(str(workspace / "link"),)))
    yield Bench(workspace, tools)
    await tools.aclose()


@pytest.mark.requirement("C12", "S7")
@pytest.mark.parametrize("path", ["sub/mykey", "link", "hard", "sub/../hard"])
async def test_no_tool_reads_or_changes_the_key_of_the_stored_secrets(
    beside_the_key: Bench, path: str
) -> None:
    bench = beside_the_key
    for name, rest in (("read_file", {}), ("write_file", {"content": "gone"}), ("grep", {"pattern": "5"})):
        assert await rule_of(bench, name, path=path, **rest) == "own"
        result = await bench.run(name, path=path, **rest)
        assert result.status == "error"
        assert KEY not in result.text
    assert await rule_of(bench, "shell", command=f"xxd {path}") == "own"
    assert await rule_of(bench, "shell", command="xxd sub/my*") == "own"
    assert KEY not in (await bench.run("grep", path=".", pattern="5")).text
    assert (bench.workspace / "sub" / "mykey").read_text() == KEY
