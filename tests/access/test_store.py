"""The file of the secret store: what it says without a key, who opens it, and what damage to it means."""

from __future__ import annotations

import errno
import fcntl
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from holdfast.access import store as access_store
from holdfast.access.sealing import KEY_FILE_VARIABLE, KEY_VARIABLE
from holdfast.access.store import FILE, LOCK, MOST_SECRETS, NEW, SecretStore
from holdfast.access.stored import StoredSecrets
from holdfast.errors import SecretsSealed, StorageCorrupt, StorageError, StorageNewer, UsageError
from holdfast.redact import Redactor
from tests.syncs import record_syncs

KEY = "5e" * 32
OTHER_KEY = "6f" * 32
VALUE = "tulip-" + "under-9-moons"
NOW_MS = 1_700_000_000_000


def store(home: Path, key: str = KEY) -> SecretStore:
    return SecretStore(home, {KEY_VARIABLE: key})


@pytest.fixture(autouse=True)
def no_keyring() -> Iterator[None]:
    """No test touches the keyring of this machine."""
    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A home with two secrets."""
    store(tmp_path).set("A", VALUE, NOW_MS)
    store(tmp_path).set("b.c-d_1", VALUE + "2", NOW_MS)
    return tmp_path


def content_of(home: Path) -> Any:
    return json.loads((home / FILE).read_bytes())


@pytest.mark.requirement("S7", "A14")
def test_values_come_back_and_the_file_has_none_of_them(filled: Path) -> None:
    assert store(filled).values() == {"A": VALUE, "b.c-d_1": VALUE + "2"}
    assert VALUE.encode() not in b"".join(path.read_bytes() for path in filled.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in filled.iterdir())


def test_names_and_times_need_no_key_and_no_packages(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    content = SecretStore(filled, {}).content()
    assert content is not None
    assert {name: entry.set_at_ms for name, entry in content.entries.items()} == {
        "A": NOW_MS,
        "b.c-d_1": NOW_MS,
    }
    assert SecretStore(filled, {}).remove("A")
    assert [*content_of(filled)["entries"]] == ["b.c-d_1"]


@pytest.mark.requirement("S7")
def test_a_write_takes_a_new_nonce_and_leaves_the_other_secrets_as_they_are(filled: Path) -> None:
    before = content_of(filled)["entries"]
    store(filled).set("A", VALUE, NOW_MS)
    after = content_of(filled)["entries"]
    assert after["A"]["value"]["nonce"] != before["A"]["value"]["nonce"]
    assert after["b.c-d_1"] == before["b.c-d_1"]


@pytest.mark.requirement("S7")
def test_another_key_is_told_and_overwrites_nothing(filled: Path) -> None:
    before = (filled / FILE).read_bytes()
    for what in (
        lambda: store(filled, OTHER_KEY).values(),
        lambda: store(filled, OTHER_KEY).set("C", VALUE, 1),
    ):
        with pytest.raises(UsageError, match="The key does not fit") as caught:
            what()
        assert caught.value.exit_code == 2
    assert (filled / FILE).read_bytes() == before


@pytest.mark.requirement("S7")
def test_a_truncated_or_foreign_file_is_told_and_left_as_it_is(filled: Path) -> None:
    whole = (filled / FILE).read_bytes()
    cuts = [whole[:at] for at in range(0, len(whole) - 2, 37)]
    for damaged in (*cuts, b"[]", b'{"kind": "other", "version": 1}', b"\xff\xfe", b"SQLite format 3\0"):
        (filled / FILE).write_bytes(damaged)
        for what in (lambda: store(filled).values(), lambda: store(filled).set("C", VALUE, 1)):
            with pytest.raises(StorageCorrupt) as caught:
                what()
            assert caught.value.exit_code == 9
        assert (filled / FILE).read_bytes() == damaged


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("place", ["names", "times", "stores"])
def test_a_value_opens_in_no_other_place(
    filled: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    content = content_of(filled)
    entries = content["entries"]
    if place == "names":
        entries["A"]["value"], entries["b.c-d_1"]["value"] = (
            entries["b.c-d_1"]["value"],
            entries["A"]["value"],
        )
    elif place == "times":
        entries["A"]["set_at_ms"] += 1
    else:
        other = tmp_path_factory.mktemp("other")
        store(other).set("A", "another-value", NOW_MS)
        entries["A"] = content_of(other)["entries"]["A"]
    (filled / FILE).write_text(json.dumps(content))
    with pytest.raises(StorageCorrupt, match=r"A .*damaged, or was swapped"):
        store(filled).values()


def test_a_file_of_a_newer_version_is_refused(filled: Path) -> None:
    (filled / FILE).write_text(json.dumps(content_of(filled) | {"version": 2}))
    with pytest.raises(StorageNewer):
        store(filled).values()


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        store(tmp_path).values()
    with pytest.raises(StorageError):
        store(tmp_path).set("A", VALUE, NOW_MS)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageError):
        store(tmp_path).values()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "a" * 65, "A\n", "--x=", "a:b"])
def test_no_other_names_are_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        store(tmp_path).set(name, VALUE, NOW_MS)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    "value",
    ["", "seven77", "a" * 8_001, "two\nlines-of-it", " blank-before", "nul\0nul\0nul", "ümlaut-ümlaut"],
)
def test_no_other_values_are_taken_and_the_error_shows_none(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        store(tmp_path).set("A", value, NOW_MS)
    assert not value or value not in f"{caught.value.message}{caught.value.hint}"
    assert not (tmp_path / FILE).exists()


def test_there_is_a_most_of_secrets(filled: Path) -> None:
    content = content_of(filled)
    (filled / FILE).write_text(
        json.dumps(content | {"entries": {f"N{at}": content["entries"]["A"] for at in range(MOST_SECRETS)}})
    )
    with pytest.raises(UsageError, match="1,000 secrets"):
        store(filled).set("A", VALUE, NOW_MS)


@pytest.mark.requirement("S7")
def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"N{at}" for at in range(24)]
    with ThreadPoolExecutor(8) as threads:
        # Each has a descriptor of its own, so their locks are as apart as those of processes.
        list(threads.map(lambda name: store(tmp_path).set(name, VALUE + name, NOW_MS), names))
    assert store(tmp_path).values() == {name: VALUE + name for name in names}


@pytest.mark.requirement("S7")
def test_a_writer_waits_for_another_one(filled: Path) -> None:
    before = (filled / FILE).read_bytes()
    with ThreadPoolExecutor(1) as thread:
        with (filled / LOCK).open("rb") as theirs:
            fcntl.flock(theirs, fcntl.LOCK_EX)
            writing = thread.submit(store(filled).set, "A", "another-value", NOW_MS)
            assert not wait([writing], timeout=0.1).done
            assert (filled / FILE).read_bytes() == before
        assert writing.result() == "environment"
    assert store(filled).values()["A"] == "another-value"


@pytest.mark.requirement("S7")
def test_a_writer_that_is_killed_leaves_the_old_value_or_the_new_one(tmp_path: Path) -> None:
    store(tmp_path).set("OTHER", VALUE, NOW_MS)
    program = [sys.executable, "-m", "tests.access.killed_writers", str(tmp_path), KEY, "60"]
    said = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "60 killed\n"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "secrets.new") == [
        FILE,
        "secrets.lock",
    ]


# --- keys -----------------------------------------------------------------------------------------


def test_the_key_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    SecretStore(tmp_path, {KEY_FILE_VARIABLE: str(file)}).set("A", VALUE, NOW_MS)
    assert store(tmp_path).values() == {"A": VALUE}


@pytest.mark.parametrize("key", ["x", "zz" * 32, "5e" * 31, "5e" * 33])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="64 hex digits") as caught:
        store(tmp_path, key).set("A", VALUE, NOW_MS)
    assert f" {key}" not in caught.value.message
    with pytest.raises(UsageError, match="cannot be read"):
        SecretStore(tmp_path, {KEY_FILE_VARIABLE: str(tmp_path / "none")}).set("A", VALUE, NOW_MS)


def test_a_missing_key_is_told_with_its_variables(filled: Path) -> None:
    with pytest.raises(UsageError) as caught:
        SecretStore(filled, {}).values()
    assert KEY_VARIABLE in caught.value.hint
    assert KEY_FILE_VARIABLE in caught.value.hint


def test_without_a_keyring_a_key_has_to_be_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no keyring") as caught:
        SecretStore(tmp_path, {}).set("A", VALUE, NOW_MS)
    assert KEY_FILE_VARIABLE in caught.value.hint


@pytest.mark.parametrize("package", ["cryptography.hazmat.primitives.ciphers.aead", "keyring"])
def test_a_missing_extra_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as caught:
        SecretStore(tmp_path, {KEY_VARIABLE: KEY} if "crypto" in package else {}).set("A", VALUE, NOW_MS)
    assert "pip install 'holdfast[secrets]'" in caught.value.hint
    assert not (tmp_path / FILE).exists()


class InMemory(KeyringBackend):
    """A keyring."""

    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self._open()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._open()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._open()
        del self.kept[service, username]

    def _open(self) -> None:
        if self.is_locked:
            raise RuntimeError("the collection is locked")


@pytest.fixture
def ring(no_keyring: None) -> InMemory:
    ring = InMemory()
    keyring.set_keyring(ring)
    return ring


@pytest.mark.requirement("S7")
def test_the_keyring_keeps_the_key_and_gives_it_back(tmp_path: Path, ring: InMemory) -> None:
    assert SecretStore(tmp_path, {}).set("A", VALUE, NOW_MS) == "keyring"
    assert SecretStore(tmp_path, {}).values() == {"A": VALUE}
    ((service, _), key) = ring.kept.popitem()
    assert (service, len(key)) == ("holdfast", 64)
    assert key.encode() not in (tmp_path / FILE).read_bytes()
    with pytest.raises(UsageError, match="keyring of the system"):
        SecretStore(tmp_path, {KEY_VARIABLE: KEY}).values()


def test_a_key_that_is_given_is_taken_also_where_there_is_a_keyring(tmp_path: Path, ring: InMemory) -> None:
    assert store(tmp_path).set("A", VALUE, NOW_MS) == "environment"
    assert (ring.kept, SecretStore(tmp_path, {KEY_VARIABLE: KEY}).values()) == ({}, {"A": VALUE})


def test_with_the_last_secret_its_key_goes_from_the_keyring(tmp_path: Path, ring: InMemory) -> None:
    SecretStore(tmp_path, {}).set("A", VALUE, NOW_MS)
    assert SecretStore(tmp_path, {}).remove("A")
    assert (ring.kept, (tmp_path / FILE).exists()) == ({}, False)


def test_a_locked_keyring_is_told_and_does_not_keep_a_secret_from_its_removal(
    tmp_path: Path, ring: InMemory
) -> None:
    SecretStore(tmp_path, {}).set("A", VALUE, NOW_MS)
    ring.is_locked = True
    with pytest.raises(UsageError, match="did not answer"):
        SecretStore(tmp_path, {}).values()
    assert SecretStore(tmp_path, {}).remove("A")


@pytest.mark.requirement("S7")
def test_a_write_is_durable_before_it_takes_the_place_of_the_file(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, syncs = (filled / FILE).stat().st_ino, record_syncs(monkeypatch)
    store(filled).set("A", VALUE + "3", NOW_MS)
    content, folder = syncs
    assert (content.path, content.size_bytes) == (filled / NEW, (filled / FILE).stat().st_size)
    assert (folder.path, NEW in folder.names) == (filled, False)
    assert (filled / FILE).stat().st_ino != before


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("names", [["A"], ["A", "b.c-d_1"]])
def test_a_change_that_the_disk_does_not_confirm_is_said_to_be_made(
    filled: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    def failing(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(access_store, "sync_folder", failing)
    told = r"was changed, but the disk did not confirm it \(Input/output error\)"
    with pytest.raises(StorageError, match=told):
        store(filled).set("A", VALUE + "3", NOW_MS)
    assert store(filled).values()["A"] == VALUE + "3"
    for name in names:
        with pytest.raises(StorageError, match=told):
            store(filled).remove(name)
    content = store(filled).content()
    assert [*(content.entries if content is not None else ())] == ["A", "b.c-d_1"][len(names) :]


@pytest.mark.requirement("S7", "A14")
def test_what_a_killed_write_left_does_not_open_the_next_one_to_others(filled: Path) -> None:
    (filled / NEW).write_text("left")
    (filled / NEW).chmod(0o666)
    store(filled).set("A", VALUE + "3", NOW_MS)
    assert stat.S_IMODE((filled / FILE).stat().st_mode) == 0o600


@pytest.mark.requirement("S7", "A14")
def test_no_write_follows_a_link(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "file"
    other.write_text("mine")
    (filled / NEW).symlink_to(other)
    with pytest.raises(StorageError):
        store(filled).set("A", VALUE + "3", NOW_MS)
    assert (other.read_text(), store(filled).values()["A"]) == ("mine", VALUE)


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("environ", [{}, {KEY_VARIABLE: OTHER_KEY}])
def test_a_running_process_that_cannot_read_what_was_stored_stops(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    stored = StoredSecrets(tmp_path, environ, Redactor())
    stored.look()
    store(tmp_path).set("A", VALUE, NOW_MS)
    for _ in range(2):
        with pytest.raises(SecretsSealed, match="key"):
            stored.look()
    store(tmp_path).remove("A")
    stored.look()


@pytest.mark.requirement("S7")
def test_a_running_process_never_uses_a_value_that_the_store_no_longer_has(filled: Path) -> None:
    redact = Redactor()
    stored = StoredSecrets(filled, {KEY_VARIABLE: KEY}, redact)
    assert stored.value("A") == VALUE
    store(filled).remove("A")
    with pytest.raises(UsageError, match="There is no secret A"):
        stored.value("A")
    store(filled).remove("b.c-d_1")
    store(filled, OTHER_KEY).set("b.c-d_1", VALUE, NOW_MS)
    with pytest.raises(SecretsSealed, match="does not fit"):
        stored.value("b.c-d_1")
    (filled / FILE).write_bytes(b"{")
    with pytest.raises(StorageCorrupt):
        stored.value("b.c-d_1")
    assert redact(VALUE) == "[redacted:known]"


@pytest.mark.requirement("A14")
def test_a_file_of_deep_json_is_something_else(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(StorageCorrupt, match="was left as it is"):
        store(tmp_path).values()
