"""Seals values with AES-GCM, and finds the key: in the environment, or in the keyring of the operating system.

The only module that uses the packages of the extra `secrets`, and only when something is sealed or opened. `store`
has the file.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

KEY_VARIABLE = "HOLDFAST_SECRETS_KEY"
KEY_FILE_VARIABLE = "HOLDFAST_SECRETS_KEY_FILE"
EXTRA = "pip install 'holdfast[secrets]'"
KEY_BYTES = 32
_SERVICE = "holdfast"
_NONCE_BYTES = 12
_LEAST_PRIORITY = 1
"""What `keyring` gives to a backend that it recommends. Less have those that fail, or that keep a plain file."""
_HEX = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_KEY_FILE_BYTES = 4_096


class Sealed(msgspec.Struct, frozen=True):
    """A value that only its key opens."""

    nonce: bytes
    box: bytes


class DoesNotFit(Exception):
    """The key, or what the value is bound to, is another one; or the value was damaged."""


def new_key() -> bytes:
    """Return a new key."""
    return secrets.token_bytes(KEY_BYTES)


def seal(key: bytes, value: bytes, bound_to: bytes) -> Sealed:
    """Return the value sealed, with a nonce that was never used before."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    box: bytes = _cipher(key).encrypt(nonce, value, bound_to)
    return Sealed(nonce, box)


def opened(key: bytes, sealed: Sealed, bound_to: bytes) -> bytes:
    """Return the value.

    Raises:
        DoesNotFit: it was sealed with another key, or is bound to something else.
    """
    try:
        from cryptography.exceptions import InvalidTag

        value: bytes = _cipher(key).decrypt(sealed.nonce, sealed.box, bound_to)
    except (InvalidTag, ValueError):  # the second: its nonce has another length
        raise DoesNotFit from None
    return value


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _no_extra() from None
    return AESGCM(key)


def _no_extra() -> UsageError:
    return UsageError(
        "The secret store needs packages that are not installed.", hint=f"Install them: {EXTRA}"
    )


# --- the key in the environment -------------------------------------------------------------------


def given_key(environ: Mapping[str, str]) -> bytes | None:
    """Return the key that the environment has or names; None if it does neither.

    Raises:
        UsageError: it is not a key, or its file cannot be read.
    """
    text, named = environ.get(KEY_VARIABLE, "").strip(), environ.get(KEY_FILE_VARIABLE, "")
    if not text and not named:
        return None
    where = KEY_VARIABLE
    if not text:
        where = f"The file of {KEY_FILE_VARIABLE}, {named},"
        text = _key_file(key_file(environ), where)
    if not _HEX.fullmatch(text):
        raise UsageError(
            f"{where} has no key: a key is 64 hex digits.", hint="`openssl rand -hex 32` makes one."
        )
    return bytes.fromhex(text)


def key_file(environ: Mapping[str, str]) -> str:
    """Return the file that the environment names for the key, also if nothing is there; empty: it names none."""
    named = environ.get(KEY_FILE_VARIABLE, "")
    return os.path.abspath(os.path.expanduser(named)) if named and "\0" not in named else ""  # noqa: PTH100, PTH111


def key_in_file(environ: Mapping[str, str]) -> str:
    """Return the key in that file as it is written there; empty if nothing there is one."""
    with suppress(UsageError):
        text = _key_file(path, path) if (path := key_file(environ)) else ""
        return text if _HEX.fullmatch(text) else ""
    return ""


def _key_file(path: str, where: str) -> str:
    try:
        with open(path, "rb", opener=_opener) as file:
            return file.read(_KEY_FILE_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        hint = "Correct the variable, or check the permissions of the file."
        raise UsageError(f"{where} cannot be read: {error.strerror}.", hint=hint) from None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer would wait for ever


# --- the key in the keyring -----------------------------------------------------------------------


def keyring_name() -> str:
    """Return the name of this machine's keyring; empty if it has none that can be used.

    Raises:
        UsageError: the extra is missing.
    """
    backend = _backend()
    return type(backend).__module__.rpartition(".")[2] if backend is not None else ""


def kept_key(store: str) -> bytes | None:
    """Return the key of a store that the keyring has; None if it has none.

    Raises:
        UsageError: it does not answer, or the extra is missing.
    """
    text = _asked("get_password", store)
    return bytes.fromhex(text) if text and _HEX.fullmatch(text) else None


def keep_key(store: str, key: bytes) -> None:
    """Give the key of a store to the keyring. Raises what `kept_key` raises."""
    _asked("set_password", store, key.hex())


def forget_key(store: str) -> None:
    """Remove the key of a store that is gone. If the keyring cannot be reached, it stays, and opens nothing."""
    with suppress(UsageError):
        _asked("delete_password", store)


def _asked(what: str, *values: str) -> str | None:
    backend = _backend()
    if backend is None:
        return None
    try:
        answer: str | None = getattr(backend, what)(_SERVICE, *values)
    except Exception as error:  # each keyring has errors of its own
        raise UsageError(
            f"The keyring of this system did not answer ({type(error).__name__}).",
            hint=f"Unlock it. On a machine without a desktop, set {KEY_VARIABLE} instead.",
        ) from None
    return answer


def _backend() -> KeyringBackend | None:
    """Return the keyring, if it is one that `keyring` recommends."""
    try:
        import keyring
    except ImportError:
        raise _no_extra() from None
    try:
        backend = keyring.get_keyring()
        return backend if backend.priority >= _LEAST_PRIORITY else None
    except Exception:  # one that cannot even be asked
        return None
