"""The key of the secret store in a real keyring: that of GNOME where it is there, and one that a package adds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.access.store import FILE
from tests.edge import nursery

VALUE = "poppy-" + "under-4-moons"
PROGRAMS = ("dbus-run-session", "gnome-keyring-daemon")
UNLOCK = """
printf %s "$1" | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1
shift
exec "$@"
"""
BACKEND = """
import json, pathlib
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

FILE = pathlib.Path(__file__).with_name("kept.json")


class FileKeyring(KeyringBackend):
    priority = 5

    def _kept(self):
        if FILE.with_name("locked").exists():
            raise KeyringLocked("locked")
        return json.loads(FILE.read_text()) if FILE.exists() else {}

    def get_password(self, service, name):
        return self._kept().get(f"{service}/{name}")

    def set_password(self, service, name, password):
        FILE.write_text(json.dumps({**self._kept(), f"{service}/{name}": password}))

    def delete_password(self, service, name):
        kept = self._kept()
        if kept.pop(f"{service}/{name}", None) is None:
            raise PasswordDeleteError(name)
        FILE.write_text(json.dumps(kept))
"""
Command = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(folder: Path, **more: str) -> dict[str, str]:
    for name in ("user", "run"):
        (folder / name).mkdir(mode=0o700)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "user"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
    }
    return {**environ, "HOLDFAST_HOME": str(folder / "home"), "LANG": "C.UTF-8", **more}


def run(
    words: Sequence[str], stdin: str, environ: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, input=stdin, env=environ, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def gnome(folder: Path) -> Command:
    environ = environment(folder)

    def command(*words: str, stdin: str = "", is_locked: bool = False) -> subprocess.CompletedProcess[str]:
        holdfast = [sys.executable, "-m", "holdfast", *words]
        session = ["dbus-run-session", "--", "sh", "-c", UNLOCK, "sh", "wrong" if is_locked else "right"]
        return run([*session, *holdfast], stdin, environ, folder)

    return command


def added(folder: Path) -> Command:
    place = folder / "packages"
    place.mkdir()
    (place / "file_keyring.py").write_text(BACKEND)
    environ = environment(folder, PYTHONPATH=str(place), PYTHON_KEYRING_BACKEND="file_keyring.FileKeyring")

    def command(*words: str, stdin: str = "", is_locked: bool = False) -> subprocess.CompletedProcess[str]:
        (place / "locked").touch() if is_locked else (place / "locked").unlink(missing_ok=True)
        return nursery.run(words, input=stdin, text=True, timeout=60, env=environ, cwd=folder)

    return command


WITH_GNOME = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason="needs gnome-keyring-daemon and dbus-run-session"
)


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    "keyring",
    [
        pytest.param(gnome, marks=[pytest.mark.long, WITH_GNOME]),
        added,
    ],
)
def test_a_real_keyring_keeps_the_key_from_one_process_to_the_next(
    tmp_path: Path, keyring: Callable[[Path], Command]
) -> None:
    command = keyring(tmp_path)
    stored = command("secret", "set", "MINE", stdin=f"{VALUE}\n")
    assert (stored.returncode, "in the keyring of the system" in stored.stdout) == (0, True), stored.stderr
    content = json.loads((tmp_path / "home" / FILE).read_bytes())
    assert content["key"] == "keyring"
    masked = command("redact", stdin=f"x {VALUE} y\n")
    assert (masked.returncode, masked.stdout) == (0, "x [redacted:known] y\n"), masked.stderr
    before = (tmp_path / "home" / FILE).read_bytes()
    locked = command("redact", stdin=f"x {VALUE} y\n", is_locked=True)
    assert (locked.returncode, locked.stdout, "keyring" in locked.stderr) == (2, "", True), locked.stderr
    refused = command("secret", "set", "OTHER", stdin=f"{VALUE}\n", is_locked=True)
    assert (refused.returncode, (tmp_path / "home" / FILE).read_bytes()) == (2, before), refused.stderr
    assert command("secret", "list", "--json", is_locked=True).returncode == 0
    assert command("secret", "set", "OTHER", stdin=f"{VALUE}-2\n").returncode == 0
    names = [json.loads(line)["name"] for line in command("secret", "list", "--json").stdout.splitlines()]
    assert names == ["MINE", "OTHER"]
    for name in names:
        assert command("secret", "remove", name).returncode == 0
    assert not (tmp_path / "home" / FILE).exists()
    everything = [path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any(VALUE.encode() in content for content in everything)
