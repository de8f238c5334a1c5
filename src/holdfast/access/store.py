"""The secret store of a home: one file, in which each value is sealed by itself.

The file has the names and times in the clear, so a list needs no key. The key is in the keyring of the operating
system, or in the environment; the file says where. It is replaced as a whole under a lock, so a reader needs none.
`sealing` has the cipher and the keys.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.access.sealing import (
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    DoesNotFit,
    Sealed,
    forget_key,
    given_key,
    keep_key,
    kept_key,
    keyring_name,
    new_key,
    opened,
    seal,
)
from holdfast.errors import StorageCorrupt, StorageError, StorageLocked, StorageNewer, UsageError
from holdfast.locks import try_lock
from holdfast.protocol.ids import SECRET_NAME, SECRET_NAME_IS
from holdfast.redact import KNOWN_SECRET_MIN_CHARS
from holdfast.storage.blobs import sync_folder
from holdfast.storage.errors import storage_errors

FILE = "secrets.json"
NEW = "secrets.new"
"""What a write makes before it takes the place of the file. A killed one leaves it, and the next writes it anew."""
LOCK = "secrets.lock"
_NAME = re.compile(SECRET_NAME)
VALUE_MAX_CHARS = 8_000
"""As long as the value of a header may be."""
MOST_SECRETS = 1_000
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
_KIND: Literal["holdfast.secrets"] = "holdfast.secrets"
_VERSION = 1
_CHECK = b"holdfast"
"""What is sealed to tell another key from a damaged value."""
_FILE_MAX_BYTES = 32 << 20
_WAIT_S = 10.0
_AGAIN_S = 0.01
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

Place = Literal["environment", "keyring"]
"""Where the key is."""
_GIVEN: Place = "environment"
_KEPT: Place = "keyring"


class Entry(msgspec.Struct, frozen=True):
    """A secret: when it was set, and its value, which is bound to name and time."""

    set_at_ms: int
    value: Sealed


class _Format(msgspec.Struct, frozen=True):
    """What every version of the file begins with."""

    kind: Literal["holdfast.secrets"]
    version: int


class Content(msgspec.Struct, frozen=True):
    """The content of the file."""

    kind: Literal["holdfast.secrets"]
    version: int
    id: str
    """Names the key in the keyring. Every value is bound to it."""
    key: Place
    check: Sealed
    entries: dict[str, Entry]


class SecretStore:
    """The secrets of one home. All methods block."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.path = home / FILE
        self._home = home
        self._environ = environ
        self._keys: dict[str, bytes] = {}
        """The keys that were found to fit, by the id of the store."""

    def content(self) -> Content | None:
        """Return the file as it is, with sealed values; None if there is no file.

        Raises:
            StorageError: it cannot be read, or is something else. It is left as it is.
        """
        with storage_errors(self.path):
            data = self._data()
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=_Format)
            if found.version > _VERSION:
                raise StorageNewer(
                    f"{self.path} was written by a newer version of Holdfast.", hint="Update Holdfast."
                )
            content = msgspec.json.decode(data, type=Content)
            if all(map(_NAME.fullmatch, content.entries)):
                return content
        except (msgspec.DecodeError, RecursionError):
            pass
        raise StorageCorrupt(
            f"{self.path} is damaged, or no secret store of Holdfast; it was left as it is.",
            hint="Move it away, and set the secrets again: `holdfast secret set NAME`.",
        )

    def values(self) -> dict[str, str]:
        """Return all secrets by name.

        Raises:
            UsageError: the key is missing or does not fit, or the extra is missing.
            StorageError: the file cannot be read, is damaged, or is something else.
        """
        content = self.content()
        if content is None:
            return {}
        key = self._key(content)
        return {name: self._value(content, key, name) for name in content.entries}

    def known_keys(self) -> dict[str, str]:
        """Return the keys that were used, as a variable or file has them, by a name for each."""
        forms = [form for key in self._keys.values() for form in (key.hex(), key.hex().upper())]
        return {f"{KEY_VARIABLE} ({number})": form for number, form in enumerate(forms, start=1)}

    def set(self, name: str, value: str, now_ms: int) -> Place:
        """Store a value under a name, also in place of an older one. Return where the key is.

        Raises:
            UsageError: the name or value is not allowed, or there is no key that fits.
            StorageError: the file cannot be read or written.
        """
        check_name(name)
        check_value(value)
        with self._locked():
            content = self.content()
            content, key = self._new() if content is None else (content, self._key(content))
            if name not in content.entries and len(content.entries) >= MOST_SECRETS:
                raise UsageError(f"There are {MOST_SECRETS:,} secrets already.", hint="Remove some.")
            sealed = seal(key, value.encode(), _bound(content.id, name, now_ms))
            entries = {**content.entries, name: Entry(now_ms, sealed)}
            self._write(replace(content, entries=dict(sorted(entries.items()))))
            return content.key

    def remove(self, name: str) -> bool:
        """Remove a secret, which needs no key. Return whether there was one. With the last one the key goes, too."""
        with self._locked():
            content = self.content()
            if content is None or name not in content.entries:
                return False
            entries = {each: entry for each, entry in content.entries.items() if each != name}
            if entries:
                self._write(replace(content, entries=entries))
                return True
            with storage_errors(self.path):
                self.path.unlink()
            self._confirm()
            if content.key == _KEPT:
                forget_key(content.id)
            return True

    # --- keys -------------------------------------------------------------------------------------

    def _new(self) -> tuple[Content, bytes]:
        """Return an empty store and its key: the one that was given, else a new one in the keyring."""
        key, name, place = given_key(self._environ), secrets.token_hex(16), _GIVEN
        if key is None:
            if not keyring_name():
                raise UsageError(
                    "This system has no keyring, so the store needs a key of yours.",
                    hint=f"Make one: (umask 077; openssl rand -hex 32 > FILE), and set {KEY_FILE_VARIABLE}=FILE.",
                )
            key, place = new_key(), _KEPT
            keep_key(name, key)
            if kept_key(name) != key:
                raise UsageError(
                    "The keyring of this system did not keep a key.", hint=f"Set {KEY_VARIABLE}."
                )
        check = seal(key, _CHECK, _bound(name, "", 0))
        self._keys[name] = key
        return Content(_KIND, _VERSION, name, place, check, {}), key

    def _key(self, content: Content) -> bytes:
        """Return the key of a store, which was found to fit."""
        known = self._keys.get(content.id)
        if known is not None and self._fits(content, known):
            return known
        key = given_key(self._environ) if content.key == _GIVEN else kept_key(content.id)
        if key is None and content.key == _GIVEN:
            raise UsageError(
                "The secrets of this home cannot be read: their key is missing.",
                hint=f"Set {KEY_VARIABLE} or {KEY_FILE_VARIABLE}, as when they were stored.",
            )
        if key is None:
            raise UsageError(
                "The secrets of this home cannot be read: their key is in the keyring of the system, which does not "
                "have it here.",
                hint="Work where it is unlocked, or remove the secrets and set them again with "
                f"{KEY_VARIABLE}: `holdfast secret remove NAME`.",
            )
        if not self._fits(content, key):
            raise UsageError(
                f"The key does not fit {self.path}. Nothing was changed.",
                hint=f"Set {KEY_VARIABLE} or {KEY_FILE_VARIABLE} as when the secrets were stored. If that key is "
                "lost: `holdfast secret remove NAME`, for each, and set them again.",
            )
        self._keys[content.id] = key
        return key

    def _fits(self, content: Content, key: bytes) -> bool:
        try:
            return opened(key, content.check, _bound(content.id, "", 0)) == _CHECK
        except DoesNotFit:
            return False

    def _value(self, content: Content, key: bytes, name: str) -> str:
        entry = content.entries[name]
        try:
            return opened(key, entry.value, _bound(content.id, name, entry.set_at_ms)).decode()
        except (DoesNotFit, UnicodeDecodeError):
            raise StorageCorrupt(
                f"The secret {name} in {self.path} is damaged, or was swapped with another one.",
                hint=f"Set it again: `holdfast secret set {name}`.",
            ) from None

    # --- the file ---------------------------------------------------------------------------------

    def _data(self) -> bytes | None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:  # noqa: PTH123 - an open file
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            return file.read(_FILE_MAX_BYTES + 1) if is_file else b""

    def _write(self, content: Content) -> None:
        new = self._home / NEW
        with storage_errors(new):
            with open(new, "wb", opener=_new_file) as file:
                os.fchmod(file.fileno(), 0o600)  # a killed write may have left it otherwise
                file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        self._confirm()

    def _confirm(self) -> None:
        """Make the change of the file durable. It has its effect in any case, and the error says so."""
        try:
            sync_folder(self._home)
        except OSError as error:
            raise StorageError(
                f"{self.path} was changed, but the disk did not confirm it ({error.strerror or error}).",
                hint="Do the same again when the disk works.",
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only writer inside the block.

        Raises:
            StorageError: another process writes for ten seconds, or this file system has no locks.
        """
        path = self._home / LOCK
        with storage_errors(path):
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            until_s = time.monotonic() + _WAIT_S
            while (lock := try_lock(fd)) != "ours":
                if lock == "none":
                    raise StorageLocked(f"{path} cannot be locked: its file system has no locks.")
                if time.monotonic() > until_s:
                    raise StorageLocked(f"Another process keeps {path} locked.", hint="Try again later.")
                time.sleep(_AGAIN_S)
            yield
        finally:
            os.close(fd)


def _new_file(path: str, flags: int) -> int:
    return os.open(path, _NEW_FLAGS, 0o600)


def _bound(store: str, name: str, set_at_ms: int) -> bytes:
    """Return what a value is bound to: it opens in no other place."""
    return msgspec.json.encode([_KIND, _VERSION, store, name, set_at_ms])


def check_name(name: str) -> None:
    """Raises `UsageError` for a name that no secret may have."""
    if not _NAME.fullmatch(name):
        hint = "Use a name like GITHUB_TOKEN: `holdfast secret set GITHUB_TOKEN`."
        raise UsageError(f"That is not the name of a secret: a name is {SECRET_NAME_IS}.", hint=hint)


def check_value(value: str) -> None:
    """Raises `UsageError` for a value that no secret may have. It does not show the value."""
    if not value:
        raise UsageError("The value is empty.", hint="Give it on stdin, or type it when you are asked.")
    if len(value) < KNOWN_SECRET_MIN_CHARS:
        raise UsageError(
            f"The value has fewer than {KNOWN_SECRET_MIN_CHARS} characters. It would be masked in every text that "
            "has the same letters by chance.",
            hint="Use a longer secret.",
        )
    if len(value) > VALUE_MAX_CHARS:
        raise UsageError(f"The value has more than {VALUE_MAX_CHARS:,} characters.")
    if not _VALUE.fullmatch(value):
        raise UsageError(
            "The value has to be one line of ASCII characters, without blanks at its ends: it goes into a header.",
        )
