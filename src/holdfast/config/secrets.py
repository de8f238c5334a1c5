"""What `[secrets.NAME]` may say: where the value of a stored secret may go, and in which form.

The values are in no file of settings. `keys` has the table of all keys.
"""

from __future__ import annotations

from holdfast.config.values import Kind, entries, text, variable
from holdfast.protocol.allowed import allowed_host_of, hosts_are_within
from holdfast.protocol.ids import SECRET_NAME

SECTION = "secrets"
HEADER = "Authorization"
FORMAT = "Bearer {}"

NAMED = text(SECRET_NAME, "the name of a secret, like GITHUB_TOKEN")
HOSTS = entries(allowed_host_of, 'hosts, like ["api.github.com", "127.0.0.1:8080"]')
OTHERS: tuple[tuple[str, Kind, str], ...] = (
    ("env", variable(), "The variable that has a placeholder for it inside the sandbox."),
    (
        "header",
        text(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "the name of a header, like X-Api-Key"),
        f"The header that has it. Default: {HEADER}.",
    ),
    (
        "format",
        text(r"[!-z|~ ]{0,200}\{\}[!-z|~ ]{0,200}", 'a text with {} for the value, like "Bearer {}"'),
        f'What the header says. Default: "{FORMAT}".',
    ),
)


def are_within(new: tuple[str, ...], old: tuple[str, ...] | None) -> bool:
    """Return whether a list of hosts allows no more than another one. Without another one, nothing is allowed."""
    return hosts_are_within(new, old or ())
