"""What every sandbox hides of the system, and the limits that each process has."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.protocol.fence import Fence
from holdfast.sandbox import system

SECRETS = (
    "etc/shadow", "etc/shadow-", "etc/gshadow", "etc/sudoers", "etc/sudoers.d", "etc/ssh/ssh_host_ed25519_key",
    "etc/ssl/private", "etc/krb5.keytab", "etc/kubernetes", "etc/docker/key.json", "etc/wireguard",
    "etc/NetworkManager/system-connections",
)  # fmt: skip


@pytest.mark.requirement("L2", "S7")
def test_passwords_and_keys_of_the_system_are_hidden_and_all_else_is_seen(tmp_path: Path) -> None:
    for name in (*SECRETS, "etc/passwd", "etc/ssh/ssh_host_ed25519_key.pub", "etc/ssl/certs", "etc/docker/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert system.secrets_of_system(str(tmp_path)) == sorted(str(tmp_path / name) for name in SECRETS)


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
