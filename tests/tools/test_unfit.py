"""Where no command runs in a sandbox: homes of anybody, folders of the kernel, and links to Holdfast's own files."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

from holdfast.policy.protected import Own
from holdfast.protocol.allowed import is_of_kernel
from holdfast.protocol.fence import Backend
from holdfast.protocol.settings import Walls
from holdfast.tools import unfit as unfit_module
from holdfast.tools.own import OwnPlaces, own_places
from holdfast.tools.unfit import SMALLER, unfit

pytestmark = pytest.mark.requirement("L2", "C12")


def why(
    workspace: Path | str,
    own: OwnPlaces = OwnPlaces(),  # noqa: B008 - frozen
    backend: Backend = "bubblewrap",
    **walls: tuple[str, ...],
) -> str:
    told = unfit(os.path.realpath(workspace), Walls(backend, **walls), own, "/nobody", backend)
    return told.removesuffix(f". {SMALLER}")


@pytest.fixture
def dotfiles(tmp_path: Path) -> Path:
    """A workspace with links to the settings and the home, which lie elsewhere."""
    for folder in ("ws/sub", "kept/holdfast", "kept/home", "more", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "kept" / "holdfast" / "config.toml").touch()
    (tmp_path / "ws" / "holdfast").symlink_to("../kept/holdfast")
    (tmp_path / "ws" / "hf").symlink_to(tmp_path / "kept" / "home")
    (tmp_path / "more" / "blobs").mkdir()
    (tmp_path / "ws" / "hop").symlink_to(tmp_path / "more")
    (tmp_path / "kept" / "home" / "blobs").symlink_to(tmp_path / "ws" / "hop" / "blobs")
    return tmp_path.resolve()


@pytest.mark.parametrize(
    ("home", "file", "link"),
    [
        ("kept/none", "ws/holdfast/config.toml", "ws/holdfast"),
        ("kept/none", "ws/sub/../holdfast/new.toml", "ws/holdfast"),
        ("ws/hf", "kept/x.toml", "ws/hf"),
        ("kept/home", "kept/x.toml", "ws/hop"),
    ],
)
def test_no_command_runs_where_it_could_lead_holdfast_to_other_settings_or_another_home(
    dotfiles: Path, home: str, file: str, link: str
) -> None:
    own = own_places(Own((str(dotfiles / home),), (f"{dotfiles}/{file}",)))
    told = f"the link {dotfiles / link} leads to Holdfast's own files, and a command could replace it"
    assert why(dotfiles / "ws", own) == told
    assert why(dotfiles / "other", own, write=(str(dotfiles / "ws"),)) == told
    assert why(dotfiles / "ws" / "sub", own) == ""


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("path", ["ws/data", "ws/data/sub"])
def test_no_command_runs_where_one_has_led_the_settings_of_its_sandbox_elsewhere(
    tmp_path: Path, key: str, path: str
) -> None:
    """It may have put a link in place of a folder that the settings name: the next one would get what it leads to."""
    (tmp_path / "ws" / "data" / "sub").mkdir(parents=True)
    (tmp_path / "home" / "sub").mkdir(parents=True)
    named = {key: (f"{tmp_path}/{path}",)}
    assert why(tmp_path / "ws", **named) == ""
    (tmp_path / "ws" / "data").rename(tmp_path / "ws" / "away")
    (tmp_path / "ws" / "data").symlink_to(tmp_path / "home")
    told = "leads to what [sandbox] read or write names, and a command could replace it"
    assert why(tmp_path / "ws", **named) == f"the link {tmp_path}/ws/data {told}"
    assert why(tmp_path / "home", **named) == ""


def test_no_command_runs_beside_the_own_files_of_holdfast_but_for_a_key(tmp_path: Path) -> None:
    home, key = f"{tmp_path}/ws/hf", f"{tmp_path}/ws/key"
    own = OwnPlaces((home, key), (), (key,))
    assert why(tmp_path / "ws", own) == f"Holdfast's own files are in it ({home})"
    assert why(tmp_path / "ws", OwnPlaces((key,), (), (key,))) == ""


@pytest.mark.parametrize("kind", ["nothing yet", "a link", "a file"])
def test_no_command_runs_where_it_could_make_the_settings_of_the_next_run(dotfiles: Path, kind: str) -> None:
    """What comes is put aside when a command has ended. Another run may begin before, or this one be killed."""
    file, kept = dotfiles / "ws" / "config.toml", dotfiles / "kept" / "holdfast" / "config.toml"
    if kind == "a link":
        file.symlink_to(kept)
    elif kind == "a file":
        file.touch()
    own = own_places(Own((str(dotfiles / "none"),), (str(file),)))
    told = f"has a place where Holdfast looks for settings ({file}), and a command could put a file there"
    named = why(dotfiles / "other", own, write=(str(dotfiles / "ws"),))
    assert why(dotfiles / "ws", own) == ("" if kind == "a file" else f"it {told}")
    assert named == (
        ""
        if kind == "a file"
        else f"{dotfiles}/ws {told}. Take it out of [sandbox] write, or name a smaller folder there."
    )
    assert why(dotfiles / "kept" / "holdfast", own) == ""


@pytest.mark.parametrize("what", ["settings", "package", "home"])
def test_under_landlock_no_command_may_change_what_another_holdfast_uses_meanwhile(
    dotfiles: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What a command changes there is put back when it has ended. It may run for hours."""
    folder = dotfiles / "more"
    (file := folder / "config.toml").touch()
    own = own_places(
        Own(
            (str(folder / "blobs" if what == "home" else dotfiles / "none"),),
            (str(file),) * (what == "settings"),
        )
    )
    if what == "package":
        monkeypatch.setattr(unfit_module, "OURS", (f"{folder}/venv",))
    assert why(dotfiles / "other", own, "bubblewrap", write=(str(folder),)) == ""
    told = why(dotfiles / "other", own, "landlock", write=(str(folder),))
    assert told.startswith(f"{folder} holds what Holdfast itself uses ({folder}/")
    assert "Take it out of [sandbox] write" in told
    if what != "home":
        assert why(folder, own, "bubblewrap") == ""
        assert why(folder, own, "landlock").startswith(f"it holds what Holdfast itself uses ({folder}/")


@pytest.mark.parametrize("path", ["/usr", "/usr/local", "/usr/local/bin", "/usr/lib", "/etc", "/bin"])
def test_no_command_may_change_the_programs_of_the_system(tmp_path: Path, path: str) -> None:
    """Root could, and the next command, or Holdfast, would run them outside."""
    for found in (why(path), why(tmp_path, write=(path,))):
        assert "from where programs outside of every sandbox come" in found
    assert "Take it out of [sandbox] write, or name a smaller folder" in found
    for other in ("/usr/src", "/opt", "/etc/nginx", "/usr/local/share"):
        assert "programs" not in why(tmp_path, write=(other,))


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_no_command_runs_in_the_code_of_holdfast_or_of_its_python(backend: Backend) -> None:
    for module in (unfit_module, json):
        assert "lies in the code of Holdfast or of its Python" in why(
            Path(module.__file__ or "").parent, backend=backend
        )


@pytest.mark.parametrize("path", ["/proc", "/proc/self", "/sys/kernel", "/dev", "/dev/pts"])
def test_no_command_runs_in_a_folder_of_the_kernel(tmp_path: Path, path: str) -> None:
    (link := tmp_path / "link").symlink_to(path)
    for found in (
        why(path),
        why(link),
        why(tmp_path, write=(str(link),)),
        why(tmp_path, read=(str(link),)),
    ):
        assert "a folder in which the kernel can be changed" in found
    assert is_of_kernel(path)


def test_a_mounted_folder_of_the_kernel_counts_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path.resolve()
    mounts = {"/": "ext4", f"{top}/root/proc": "proc", f"{top}/dev": "devtmpfs", f"{top}/dev/shm": "tmpfs"}
    monkeypatch.setattr(unfit_module, "_mounts", lambda: mounts)
    for path in (top, top / "root", top / "root" / "proc" / "sys", top / "dev" / "x"):
        assert "a folder in which the kernel can be changed" in why(path)
    for path in (top / "other", top / "dev" / "shm" / "x"):
        assert why(path) == ""


def test_what_is_mounted_on_this_machine_is_known() -> None:
    assert unfit_module._mounts()["/proc"] == "proc"


def test_no_command_runs_in_the_home_folder_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = {"person": 1_000, "service": 33, "gone": 1_001}
    for name in ("person", "service"):
        (tmp_path / "homes" / name / "work").mkdir(parents=True)
    users = [
        pwd.struct_passwd((name, "x", uid, uid, "", f"{tmp_path}/homes/{name}", ""))
        for name, uid in homes.items()
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(unfit_module, "_HOMES", (str(tmp_path / "usual"),))
    unfit_module._homes_of_others.cache_clear()
    try:
        for name in ("homes", "homes/person"):
            assert why(tmp_path / name) == f"it is, or holds, the home folder {tmp_path}/homes/person"
        for name in ("homes/person/work", "homes/service", "homes/gone"):
            assert why(tmp_path / name) == ""
    finally:
        unfit_module._homes_of_others.cache_clear()
    (folder := tmp_path / "usual" / "somebody").mkdir(parents=True)
    assert why(tmp_path / "usual") == f"it is, or holds, {tmp_path}/usual, where the home folders are"
    assert why(folder) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert (why(folder) == "it is the home folder of a user") == bool(folder.stat().st_uid)
