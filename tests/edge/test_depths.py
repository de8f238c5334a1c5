"""Programs nest folders deeper than a stack or a path reaches. What Holdfast does with folders works there too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import depths
from holdfast.cli import copied
from holdfast.cli.doctor import close_to_others
from holdfast.errors import UsageError
from holdfast.runtime import copies, isolate, rewind
from holdfast.runtime.drafts import draft_beside
from holdfast.sandbox import landlock, probing
from holdfast.tools import cloning, grep_child, repository
from holdfast.tools.own import OwnPlaces
from tests.depths import REACHED, nested
from tests.tools.ordinary import as_an_ordinary_user


def test_a_walk_tells_all_that_a_path_reaches_and_where_it_ends(tmp_path: Path) -> None:
    with nested(tmp_path):
        (tmp_path / "link").symlink_to(tmp_path)
        (tmp_path / "file").touch()
        found = list(depths.walked(str(tmp_path)))
    assert {entry.name for entry in found[0][1] or ()} == {"a", "file", "link"}
    assert len(found) > REACHED
    assert [entries for _, entries in found].count(None) == 1
    assert found[-1][1] is None


def test_a_removal_leaves_nothing_also_of_folders_that_were_closed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    with as_an_ordinary_user(tmp_path), nested(top) as deepest:
        (deepest / "kept").mkdir()
        (deepest / "kept" / "file").touch()
        for path in (deepest / "kept", deepest, top / "a" / "a", top):
            path.chmod(0)
        depths.remove(str(top))
        assert not top.exists()


def test_a_removal_says_why_something_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        depths.remove(str(file))
    assert file.exists()


def test_a_draft_of_a_killed_writer_goes_however_deep_it_is(tmp_path: Path) -> None:
    left = tmp_path / f".holdfast-{'0' * 16}.draft"
    left.mkdir()
    with nested(left), draft_beside(tmp_path / "new", is_folder=True) as (draft, _):
        assert [path.name for path in tmp_path.iterdir()] == [draft.name]


def test_a_copy_can_be_given_up_however_deep_a_command_made_it(tmp_path: Path) -> None:
    home, name = tmp_path / "home", "0" * 16
    (home / copies.FOLDER).mkdir(parents=True)
    (home / copies.FOLDER / f"{name}.json").touch()
    copy = copies.beside(home) / name / "workspace"
    copy.mkdir(parents=True)
    with nested(copy):
        copies.drop(home, str(copy))
        assert not list(copies.beside(home).iterdir())
        assert not list((home / copies.FOLDER).iterdir())


def test_left_views_and_probes_go_however_deep_a_program_made_them(
    tmp_path: Path,
) -> None:
    probe, view = tmp_path / "holdfast-probe-x", tmp_path / "holdfast-git-x"
    probe.mkdir()
    view.mkdir()
    with nested(probe), nested(view):
        os.utime(view, (0, 0))
        probing._remove_left(str(tmp_path))
        repository.sweep(str(tmp_path))
        assert not list(tmp_path.iterdir())


def test_reading_walks_reach_the_end_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "objects" / "ab").mkdir(parents=True)
    (tmp_path / "objects" / "ab" / "cd").write_text("object")
    with nested(tmp_path / "objects"):
        assert copied._size(str(tmp_path)) == (len("object"), False)
        assert not isolate._is_going(str(tmp_path), str(tmp_path), {"objects/ab/cd"})
        assert len(list(grep_child._files_under([str(tmp_path)]))) == 1
        close_to_others(tmp_path)
        (made := tmp_path / "made" / "objects").mkdir(parents=True)
        cloning._add_objects(str(tmp_path), made.parent, OwnPlaces())
    assert [str(path.relative_to(made)) for path in made.glob("*/*")] == ["ab/cd"]


def test_all_beside_what_is_hidden_is_allowed_however_deep_that_is(tmp_path: Path) -> None:
    with nested(tmp_path) as deepest:
        (deepest / "hidden").touch()
        (deepest / "shown").touch()
        found = list(landlock.parts(str(tmp_path), [str(deepest / "hidden")]))
    assert sorted(Path(path).name for path in found) == ["b" * 200, "shown"]


def test_a_fork_says_that_folders_are_too_deep_to_copy(tmp_path: Path) -> None:
    ignored = rewind._ignored(OwnPlaces(), tmp_path)
    with nested(tmp_path) as deepest:
        assert ignored(str(tmp_path), ["a"]) == []
        with pytest.raises(UsageError, match="more than 100 folders in each other"):
            ignored(str(deepest), [])
