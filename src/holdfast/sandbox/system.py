"""What every sandbox shows of the system, what it hides there, and the limits that the kernel knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.protocol.fence import Fence

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
)  # fmt: skip
_SECRETS = (
    "etc/shadow*", "etc/gshadow*", "etc/sudoers*", "etc/ssh/*_key", "etc/ssl/private", "etc/krb5.keytab",
    "etc/kubernetes", "etc/docker/*.json", "etc/wireguard", "etc/NetworkManager/system-connections",
)  # fmt: skip
_MOST_OPEN_FILES = 4096


def secrets_of_system(top: str = "/") -> list[str]:
    """Return what nobody may read there. A process of root has root's access to files, whatever it calls itself."""
    return sorted(str(path) for pattern in _SECRETS for path in Path(top).glob(pattern))


def limits(fence: Fence) -> Mapping[str, int]:
    """Return the limits of each process, by their names."""
    return {
        "RLIMIT_DATA": fence.memory_bytes,
        "RLIMIT_FSIZE": fence.file_bytes,
        "RLIMIT_CPU": fence.cpu_s,
        "RLIMIT_NOFILE": _MOST_OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
