"""What a process knows to be secret: the keys of its environment, and what its home stores."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.access.sealing import KEY_FILE_VARIABLE, key_in_file
from holdfast.access.stored import StoredSecrets
from holdfast.config.paths import Home
from holdfast.config.settings import Config
from holdfast.providers.registry import PROVIDERS
from holdfast.redact import Redactor
from holdfast.redact.known import named_secrets


def known_secrets(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """By name, the values of all variables that contain, or could contain, a provider's key or another secret, and
    the key of the stored secrets, if it is in a file.
    """
    names = {name for entry in PROVIDERS.values() for name in entry.key_env}
    names |= {name for said in config.providers.values() for name in said.api_key_env}
    keys = {name: value for name in names if (value := environ.get(name, "").strip())}
    in_file = key_in_file(environ)
    return named_secrets(environ) | keys | ({KEY_FILE_VARIABLE: in_file} if in_file else {})


def known_to(config: Config, home: Home | None, environ: Mapping[str, str]) -> tuple[Redactor, StoredSecrets]:
    """Return what masks the secrets of the environment and those that are stored, and the stored ones.

    Raises:
        UsageError: secrets are stored, and their key is missing or does not fit.
        StorageError: their file cannot be read.
    """
    redact = Redactor(known_secrets(config, environ))
    return redact, StoredSecrets(home.folder if home is not None else None, environ, redact)
