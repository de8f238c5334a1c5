"""Which paths are secret, and that ordinary ones are not."""

from __future__ import annotations

import pytest

from holdfast.policy.paths import is_inside, is_kernel_path, malformed, secret_rule

SECRET = [
    "/root/.ssh/id_rsa",
    "/home/u/.ssh",
    "/home/u/.ssh/config",
    "~/.ssh/known_hosts",
    "/etc/ssh/sshd_config",
    "/etc/shadow",
    "/etc/passwd",
    "//etc//passwd",
    "/etc/./passwd",
    ".env",
    "/ws/.env",
    "/ws/a/.env.local",
    "/ws/.ENV",
    ".Env.Production",
    "/home/u/.aws/credentials",
    "/home/u/.config/gcloud/x.json",
    "/home/u/.azure/token",
    "/home/u/.kube/config",
    "/home/u/.docker/config.json",
    ".netrc",
    "/home/u/.pgpass",
    "db/.PGPASS",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    "certs/server.pem",
    "certs/SERVER.KEY",
    "id_rsa",
    "deploy/id_rsa_old",
    "/ws/.ssh/x",
    "/ws/.ssh/id_rsa.pub",
    "app/release.keystore",
    "certs/client.p12",
    "client.PFX",
    "trust.jks",
    ".venv/lib/python3.12/site-packages/certifi/other.pem",
    "not_certifi/cacert.pem",
    ".ssh/certifi/cacert.pem",
    ".env.pub",
]

PLAIN = [
    ".env.example",
    ".env.sample",
    ".env.template",
    "id_rsa.pub",
    "keys/id_ed25519.pub",
    "x.key.md",
    ".venv/lib/python3.12/site-packages/certifi/cacert.pem",
    "/ws/.venv/lib/python3.12/site-packages/pip/_vendor/certifi/cacert.pem",
    "src/keystore.py",
    "docs/pfx.md",
    "/ws/environment.py",
    "src/key.py",
    "docs/ssh.md",
    "/etc/hosts",
    "keyboard",
    "/ws/.envoy",
    "/ws/monkey",
    "/ws/.docker/Dockerfile",
    "/etc/sshguard",
    ".",
    "",
]


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", SECRET)
def test_a_secret_path_is_recognised_in_any_letter_case_and_place(path: str) -> None:
    assert secret_rule(path)
    assert secret_rule(path.upper())


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("path", PLAIN)
def test_an_ordinary_path_is_not_secret(path: str) -> None:
    assert secret_rule(path) == ""


def test_a_sibling_with_the_same_prefix_is_not_inside() -> None:
    assert is_inside("/ws", "/ws/a")
    assert is_inside("/ws", "/ws")
    assert is_inside("/", "/a")
    assert not is_inside("/ws", "/ws2/a")


@pytest.mark.requirement("L2")
def test_kernel_folders_are_recognised_unless_the_workspace_lies_in_them() -> None:
    assert is_kernel_path("/proc/self/root/etc", "/")
    assert is_kernel_path("/dev/sda", "/ws")
    assert not is_kernel_path("/dev/shm/ws/a", "/dev/shm/ws")
    assert not is_kernel_path("/devices", "/ws")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("", "empty"),
        ("a\0.txt", "NUL"),
        ("a" * 256, "256 bytes"),
        ("a/" * 3000, "6000 bytes"),
        ("\ud800", "Unicode"),
    ],
)
def test_a_path_that_no_file_can_have_is_refused_with_the_reason(path: str, word: str) -> None:
    assert word in malformed(path)
