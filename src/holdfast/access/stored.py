"""The stored secrets of a home as one process knows them: masked everywhere, and read by name where they are used.

The file may change while the process runs: `look` compares its stamp, and reads it again. `store` has the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.access.store import FILE, SecretStore
from holdfast.errors import SecretsSealed, UsageError
from holdfast.redact import Redactor
from holdfast.sandbox.cores import leave_no_core

_Stamp = tuple[int, int, int]


class StoredSecrets:
    """What is stored, by name. A redactor learns each value before anything else sees it.

    Args:
        home: The home; None: nothing is stored.
        environ: The environment, which may have the key.
        redact: Learns the values.

    Raises:
        UsageError: the key is missing or does not fit, or the extra is missing.
        StorageError: the file cannot be read.
    """

    def __init__(self, home: Path | None, environ: Mapping[str, str], redact: Redactor) -> None:
        self._store = SecretStore(home, environ) if home is not None else None
        self._path = str(home / FILE) if home is not None else ""
        self._redact = redact
        self._values: dict[str, str] = {}
        self._stamp: _Stamp | None = None
        self._read()

    def look(self) -> None:
        """Learn what was stored since the last look, as one `stat` tells.

        Raises:
            SecretsSealed: the key is missing or does not fit. Nothing may be stored or sent: it could not be masked.
            StorageError: the file cannot be read. The same holds.
        """
        if self._store is not None and _stamp(self._path) != self._stamp:
            try:
                self._read()
            except UsageError as error:
                raise SecretsSealed(error.message, hint=error.hint) from error

    def value(self, name: str) -> str:
        """Return the value of a secret.

        Raises:
            UsageError: no secret has this name, or the secrets cannot be read as they are now.
            StorageError: their file cannot be read.
        """
        self.look()
        value = self._values.get(name)
        if value is None:
            raise UsageError(f"There is no secret {name}.", hint=f"Store it: `holdfast secret set {name}`.")
        return value

    def _read(self) -> None:
        if self._store is None:
            return
        stamp = _stamp(self._path)
        if stamp is not None:
            leave_no_core()
        values = self._store.values() if stamp is not None else {}
        self._redact.know(values | self._store.known_keys())
        self._values, self._stamp = values, stamp


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
