"""To which addresses the value of a secret may go."""

from __future__ import annotations

import pytest

from holdfast.access.credentials import Credential, Credentials, with_credential
from holdfast.config.settings import SecretUse
from holdfast.errors import UsageError
from holdfast.policy.urls import may_have_secret

VALUE = "tulip-" + "under-9-moons"


@pytest.mark.parametrize(
    ("hosts", "url", "may"),
    [
        (["api.example"], "https://api.example/x", True),
        (["api.example"], "https://API.example./x", True),
        (["api.example"], "http://api.example/x", False),
        (["api.example"], "https://api.example:8443/x", False),
        (["api.example"], "https://api.example.evil.example/", False),
        (["api.example"], "https://x.api.example/", False),
        (["*.api.example"], "https://x.api.example/", True),
        (["*.api.example"], "https://api.example/", False),
        (["api.example:80"], "http://api.example/", True),
        (["api.example:80"], "https://api.example/", False),
        (["127.0.0.1:8080"], "http://127.0.0.1:8080/x?y#z", True),
        (["127.0.0.1:8080"], "http://127.0.0.1:8081/", False),
        ([], "https://api.example/", False),
    ],
)
def test_a_secret_goes_to_its_hosts_and_unencrypted_only_where_the_port_is_named(
    hosts: list[str], url: str, may: bool
) -> None:
    assert may_have_secret(hosts, url) == may


def test_no_other_value_of_the_header_goes_beside_it_or_in_its_place() -> None:
    credential = Credential("A", "X-Key", f"k {VALUE}", VALUE, ("api.example",))
    said = {"x-key": "mine", "Accept": "*/*"}
    assert with_credential(said, credential, "https://api.example/") == {
        "Accept": "*/*",
        "X-Key": f"k {VALUE}",
    }
    assert with_credential(said, credential, "https://other.example/") == {"Accept": "*/*"}
    assert with_credential(said, None, "https://api.example/") == said
    # Many servers take `_` for `-`.
    assert with_credential({"x_key": "mine"}, credential, "https://other.example/") == {}
    assert VALUE not in f"{credential} {credential!r}"


def test_a_placeholder_is_new_each_time_and_only_for_what_can_be_used() -> None:
    uses = {
        "A": SecretUse(("a.example",), "A_TOKEN"),
        "B": SecretUse((), "B_TOKEN"),
        "C": SecretUse(("c.example",)),
        "LOST": SecretUse(("d.example",), "D_TOKEN"),
    }

    def value_of(name: str) -> str:
        if name == "LOST":
            raise UsageError("There is no secret LOST.")
        return VALUE

    credentials = Credentials(uses, value_of)
    ((variable, one),), ((_, other),) = credentials.stand_ins(), credentials.stand_ins()
    assert (variable, one.value, one.mark == other.mark) == ("A_TOKEN", VALUE, False)
    assert VALUE not in f"{one.mark}{one!r}"


def test_a_secret_without_hosts_is_for_nobody_and_the_others_are_named() -> None:
    uses = {"A": SecretUse(("a.example",)), "B": SecretUse(), "C": SecretUse(("c.example",), "", "X-C", "{}")}
    credentials = Credentials(uses, lambda name: VALUE + name)
    assert credentials.of("A").text == f"Bearer {VALUE}A"
    assert (credentials.of("C").header, credentials.of("C").text) == ("X-C", f"{VALUE}C")
    for name in ("B", "D"):
        with pytest.raises(UsageError, match="Secrets with hosts: A, C"):
            credentials.of(name)
