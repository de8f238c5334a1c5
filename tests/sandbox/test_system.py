"""What every sandbox hides of the system, and the limits that each process has."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast.protocol.fence import Backend, Fence, Finding, Launch
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock, system, watched
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.sandbox.landlock import Landlock
from holdfast.sandbox.process import Processes
from holdfast.sandbox.system import program_outside, search_path
from holdfast.testing.clock import never_over
from holdfast.tools import fencing
from holdfast.tools.own import OwnPlaces

KEY = "-----BEGIN PRIVATE " + "KEY-----\nMIIEvQ\n-----END PRIVATE " + "KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIDdz\n-----END CERTIFICATE-----\n"
PUBLIC_KEY = "-----BEGIN PUBLIC KEY-----\nMIIBIj\n-----END PUBLIC KEY-----\n"
OF_THIS_MACHINE = {"bubblewrap": bubblewrap.make(), "landlock": landlock.make()}
BAIT = "a-bait-that-nobody-may-read"

KNOWN = (
    "etc/shadow", "etc/shadow-", "etc/gshadow", "etc/sudoers", "etc/sudoers.d", "etc/ssh/ssh_host_ed25519_key",
    "etc/ssl/private", "etc/krb5.keytab", "etc/kubernetes", "etc/docker/key.json", "etc/wireguard",
    "etc/NetworkManager/system-connections", "etc/letsencrypt", "etc/ppp/chap-secrets",
)  # fmt: skip
SECRET = {
    "opt/shop/api/.env": "API_TOKEN=x",
    "opt/shop/a/b/c/d/.env.production": "API_TOKEN=x",
    "opt/shop/server.pem": CERTIFICATE + KEY,
    "opt/shop/vpn.key": "-----BEGIN OpenVPN Static key V1-----\n0123\n-----END OpenVPN Static key V1-----\n",
    "opt/shop/raw.key": "\0\1\2",
    "usr/local/lib/agent/id_rsa": KEY,
    "usr/src/app/.npmrc": "//x/:_authToken=x",
    "etc/server/privkey.pem": KEY,
}
SEEN = {
    "etc/passwd": "root:x:0:0",
    "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA",
    "etc/ssl/certs/authority.pem": CERTIFICATE,
    "etc/ssl/cert.pem": CERTIFICATE * 100,
    "etc/docker/x": "",
    "opt/shop/.env.example": "API_TOKEN=",
    "opt/shop/settings.toml": "port = 1",
    "opt/keyring.key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\nxsFN\n-----END PGP PUBLIC KEY BLOCK-----\n",
    "opt/release.pem": PUBLIC_KEY,
    "opt/shop/id_ed25519.pub": "ssh-ed25519 AAAA",
    "usr/local/lib/node_modules/x/test/server.key": KEY,
    "usr/local/lib/python3.11/test/keycert.pem": KEY,
    "usr/share/doc/x/examples/server.key": KEY,
    "usr/lib/x/server.key": KEY,
}


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    """A system of its own."""
    yield tmp_path / "top"
    system.secrets_at.cache_clear()


def write(top: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)


def found(top: Path) -> set[str]:
    system.secrets_at.cache_clear()
    return {str(Path(path).relative_to(top)) for path in system.secrets_of_system(str(top))}


@pytest.mark.requirement("L2")
def test_passwords_and_keys_of_the_system_are_hidden_and_all_else_is_seen(top: Path) -> None:
    write(top, {**dict.fromkeys(KNOWN, ""), **SECRET, **SEEN})
    assert found(top) == {*KNOWN, *SECRET}


@pytest.mark.requirement("L2")
def test_folders_of_keys_are_hidden_as_a_whole_also_behind_a_link(top: Path) -> None:
    write(top, {"opt/ci/.ssh/known_hosts": "", "opt/ci/secret/prod": "x", "opt/ci/secret/b/.env": "x"})
    (top / "opt/ci/.aws").symlink_to("secret")
    (top / "opt/ci/.env").symlink_to(top / "opt/ci/prod-1")
    (top / "opt/ci/prod-1").touch()
    (top / "opt/ci/.kube").symlink_to("/usr/bin")  # shown to everybody
    (top / "opt/ci/.azure").symlink_to("gone")
    assert found(top) == {"opt/ci/.ssh", "opt/ci/secret", "opt/ci/prod-1"}


@pytest.mark.requirement("L2")
def test_in_etc_what_others_may_not_read_is_hidden_whatever_its_name(top: Path) -> None:
    write(top, {"etc/vpn/a.conf": "", "etc/vpn/b.conf": "", "etc/vault/x/y.hcl": "", "opt/tool/a.conf": ""})
    for name, mode in {"etc/vpn/b.conf": 0o640, "etc/vault": 0o750, "opt/tool/a.conf": 0o600}.items():
        (top / name).chmod(mode)
    assert found(top) == {"etc/vpn/b.conf", "etc/vault"}


def hidden(top: Path) -> set[str]:
    """What is hidden by a process that has looked before."""
    return {str(Path(path).relative_to(top)) for path in system.secrets_of_system(str(top))}


@pytest.fixture(params=["watched", "unwatched"])
def is_watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the kernel tell what has changed, or only the times of folders."""
    if request.param == "watched":
        monkeypatch.setattr(system, "_mark", lambda path: (0, 0, 0) if Path(path).exists() else None)
    else:
        monkeypatch.setattr(watched, "_most", lambda: 0)
        monkeypatch.setattr(system, "_FRESH_NS", 0)


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a new file": ("opt/a/b/.env", lambda path: path.touch()),
    "a file in a new folder": ("opt/a/new/.env", lambda path: write(path.parent, {".env": "x"})),
    "a file from elsewhere": ("opt/a/b/x.key", lambda path: (path.parents[3] / "x").rename(path)),
    "passwords of the system": ("etc/shadow", lambda path: path.touch()),
    "a folder of the system": ("etc/wireguard", lambda path: path.mkdir()),
    "a key in a file of certificates": ("opt/a/cert.pem", lambda path: path.write_text(CERTIFICATE + KEY)),
    "what a link leads to": ("opt/a/target", lambda path: path.touch()),
}


@pytest.mark.requirement("L2")
@pytest.mark.usefixtures("is_watched")
@pytest.mark.parametrize("change", CHANGES)
def test_what_becomes_secret_in_the_system_is_hidden_from_the_next_command(top: Path, change: str) -> None:
    write(top, {"opt/a/b/plain": "", "opt/a/cert.pem": CERTIFICATE, "etc/hosts": "", "x": ""})
    (top / "opt/a/.env").symlink_to("target")
    assert hidden(top) == set()
    path, make = CHANGES[change]
    make(top / path)
    assert hidden(top) == {path}
    shutil.rmtree(top / path) if (top / path).is_dir() else (top / path).unlink()
    assert hidden(top) == set()


@pytest.mark.requirement("L2")
def test_a_file_that_its_owner_closes_to_others_is_hidden_from_the_next_command(top: Path) -> None:
    write(top, {"etc/vpn/a.conf": ""})
    assert hidden(top) == set()
    (top / "etc/vpn/a.conf").chmod(0o640)
    assert hidden(top) == {"etc/vpn/a.conf"}


@pytest.mark.usefixtures("is_watched")
def test_the_system_is_looked_at_again_only_if_it_has_changed(top: Path) -> None:
    write(top, {"opt/a/plain": "", "etc/shadow": ""})
    first = system.secrets_of_system(str(top))
    assert all(system.secrets_of_system(str(top)) is first for _ in range(5))
    (top / "opt/a/new").touch()
    assert system.secrets_of_system(str(top)) is not first


def test_what_is_not_watched_and_has_just_changed_is_looked_at_again(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_most", lambda: 0)
    write(top, {"opt/a/plain": "", "etc/shadow": ""})
    first = system.secrets_of_system(str(top))
    assert system.secrets_of_system(str(top)) is not first, "its folders are younger than two seconds"


def test_a_process_that_was_forked_looks_itself(top: Path) -> None:
    write(top, {"etc/gshadow": ""})
    first = system.secrets_of_system(str(top))
    child = os.fork()
    if not child:
        os._exit(system.secrets_of_system(str(top)) is first)
    assert os.waitpid(child, 0)[1] == 0
    assert system.secrets_of_system(str(top)) is first
    write(top, {"etc/shadow": ""})
    assert hidden(top) == {"etc/gshadow", "etc/shadow"}


def test_very_many_folders_take_turns_and_none_is_forgotten(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_most", lambda: 0)
    monkeypatch.setattr(system, "_UNWATCHED_IN_TURN", 3)
    monkeypatch.setattr(system, "_FRESH_NS", 0)
    write(top, {**{f"opt/{number}/x": "" for number in range(10)}, "etc/hosts": ""})
    assert hidden(top) == set()
    write(top, {"etc/shadow": "x"})
    assert hidden(top) == {"etc/shadow"}
    write(top, {"opt/7/.env": "x"})
    assert "opt/7/.env" in [path for _ in range(5) for path in hidden(top)]


def test_what_the_kernel_does_not_notice_is_found_in_turn(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_IN_TURN", 3)
    write(top, {**{f"opt/{number}/x": "" for number in range(10)}, "etc/hosts": ""})
    assert hidden(top) == set()
    monkeypatch.setattr(watched.Watched, "have_changed", lambda _: False)  # as for a file system of a network
    write(top, {"opt/7/.env": "x"})
    assert "opt/7/.env" in [path for _ in range(6) for path in hidden(top)]


def test_very_many_secret_files_of_a_folder_are_hidden_with_it(top: Path) -> None:
    write(top, {f"opt/keys/{number}.p12": "x" for number in range(system.MOST_OF_FOLDER + 1)})
    write(top, {f"opt/{number}.p12": "x" for number in range(system.MOST_OF_FOLDER + 1)})
    assert found(top) == {"opt/keys", *(f"opt/{number}.p12" for number in range(system.MOST_OF_FOLDER + 1))}


def test_a_large_tree_of_others_does_not_hide_what_lies_higher(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MOST_NAMES", 20)
    write(top, {f"opt/a/b/{number}/x": "" for number in range(40)})
    write(top, {"opt/z/.env": "x"})
    assert found(top) == {"opt/z/.env"}


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder that no sandbox has of its own, as it has one for `/tmp`."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)
    system.secrets_at.cache_clear()


def made(backend: Backend) -> Bubblewrap | Landlock:
    """A sandbox with the system as it is now. The processes of other tests keep the usual one."""
    if isinstance(found := OF_THIS_MACHINE[backend], Finding):
        pytest.skip(found.fault)
    return Landlock(6) if backend == "landlock" else Bubblewrap(shutil.which("bwrap") or "")


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.requirement("L2", "L11")
async def test_what_is_secret_of_the_system_cannot_be_read_unless_a_person_names_it(
    backend: Backend, shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        shown,
        {"shop/.env": BAIT, "shop/gone.key": BAIT, "ci/.ssh/id": BAIT, "shop/a": "seen", "shop/new/a": ""},
    )
    monkeypatch.setattr(system, "_LOOKED_AT", ("etc", str(shown).removeprefix("/")))
    monkeypatch.setattr(system, "SYSTEM", (*system.SYSTEM, str(shown)))
    for module in (bubblewrap, landlock):
        monkeypatch.setattr(module, "SYSTEM", system.SYSTEM)
    system.secrets_at.cache_clear()
    sandbox, fences = made(backend), fencing.Fences(OwnPlaces(), str(tmp_path / "home"), backend)
    system.secrets_of_system()
    write(shown, {"shop/new/id_rsa": BAIT})  # comes when commands have run already
    (shown / "shop/gone.key").unlink()
    (tmp_path / "workspace").mkdir()
    command = f"cd {shown}; {{ cat shop/.env; cat shop/new/*; cat ci/.ssh/id; cat shop/a; }} 2>/dev/null"
    async with aclosing(Processes(sandbox)) as processes:
        for named, output in ((), "seen"), ((str(shown / "ci/.ssh/id"),), f"{BAIT}seen"):
            # The program needs the folder. It is shown anyway, without what is hidden in it.
            fence = fences.fence(str(tmp_path / "workspace"), Walls(read=named), [str(shown)])
            launch = Launch(
                ("/bin/bash", "-c", command), fence.writable[0], "test:system", {"PATH": "/usr/bin:/bin"}, 60.0,
                60.0, never_over, fence=fence,
            )  # fmt: skip
            assert (await processes.run(launch, lambda _: None)).output == output


@pytest.mark.requirement("L2")
def test_each_limit_of_a_fence_is_one_of_the_kernel() -> None:
    fence = Fence((), memory_bytes=1, file_bytes=2, cpu_s=3)
    assert system.limits(fence) == {
        "RLIMIT_DATA": 1,
        "RLIMIT_FSIZE": 2,
        "RLIMIT_CPU": 3,
        "RLIMIT_NOFILE": 4096,
        "RLIMIT_CORE": 0,
    }


@pytest.mark.requirement("L2")
def test_no_program_of_a_folder_that_commands_may_change_runs_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bin" / "git"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"bin:{planted.parent}")
    assert shutil.which("git")
    assert not program_outside("git")
    monkeypatch.setenv("PATH", f"bin:{planted.parent}:/usr/local/bin:/usr/bin:/bin")
    assert program_outside("sh") == os.path.realpath("/bin/sh")


@pytest.mark.requirement("L2")
def test_a_command_cannot_close_its_folder_so_that_a_program_runs_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (planted := tmp_path / "git").write_text("#!/bin/sh\n")
    planted.chmod(0o555)
    tmp_path.chmod(0o555)  # its owner can undo that
    monkeypatch.setattr(os, "access", lambda _path, mode, **_: mode != os.W_OK)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("git")
    assert not program_outside("git")


def test_what_a_person_chose_is_looked_for_where_no_command_may_write(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/bin")
    (tmp_path / "ws" / "bin").mkdir(parents=True)
    (tmp_path / "in").symlink_to(tmp_path / "ws" / "bin")
    given = f"bin::{tmp_path}/ws/bin:{tmp_path}/in:{tmp_path}/link:/usr/bin"
    assert search_path(given, [str(tmp_path / "ws")]) == f"{tmp_path}/link:/usr/bin"
    assert search_path(given, [str(tmp_path)]) == "/usr/bin"


def test_after_a_fork_nothing_is_closed_that_may_be_a_file_of_somebody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child may close all files, and open others with the same numbers."""
    looked = watched.Watched()
    number = looked._fd
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert looked.have_changed()
    looked.close()
    os.fstat(number)
    os.close(number)
