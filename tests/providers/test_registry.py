"""Providers by name: known ones, unknown ones, addresses as people write them, and keys."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.providers.http import HttpPool
from holdfast.providers.registry import PROVIDERS, address_of, entry_of, make_provider


@pytest.mark.requirement("C18", "L9")
def test_an_unknown_provider_is_told_with_the_nearest_and_all_names() -> None:
    with pytest.raises(UsageError) as caught:
        entry_of("antropic")
    assert "Did you mean anthropic?" in caught.value.message
    assert all(name in caught.value.message for name in PROVIDERS)


@pytest.mark.requirement("C18")
@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != "script"])
def test_every_provider_is_made_from_its_entry(name: str) -> None:
    entry = PROVIDERS[name]
    provider = make_provider(entry, model="m", base_url="", api_key="key", http=HttpPool())
    assert provider.wire.name == entry.wire
    assert entry.base_url.startswith("http")
    assert entry.base_url_env


@pytest.mark.requirement("L9")
def test_a_missing_key_names_the_variable_and_loopback_needs_none() -> None:
    entry = PROVIDERS["anthropic"]
    with pytest.raises(UsageError) as caught:
        make_provider(entry, model="m", base_url="", api_key=" ", http=HttpPool())
    assert "ANTHROPIC_API_KEY" in caught.value.hint
    make_provider(entry, model="m", base_url="http://127.0.0.1:8000", api_key="", http=HttpPool())
    make_provider(PROVIDERS["ollama"], model="m", base_url="http://10.0.0.9", api_key="", http=HttpPool())


@pytest.mark.requirement("L9", "A4")
@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-“quoted”"])
def test_a_key_that_cannot_be_one_is_told_without_showing_it(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_provider(PROVIDERS["openai"], model="m", base_url="", api_key=key, http=HttpPool())
    assert "sk-" not in caught.value.message + caught.value.hint


@pytest.mark.requirement("L9")
@pytest.mark.parametrize(
    ("name", "given", "address"),
    [
        ("ollama", "", "http://127.0.0.1:11434/v1"),
        ("ollama", "0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("ollama", "gpu:11000", "http://gpu:11000/v1"),
        ("ollama", "http://[::1]:11434/", "http://[::1]:11434/v1"),
        ("ollama", "https://ollama.com", "https://ollama.com/v1"),
        ("ollama", "http://gpu/ollama/v1", "http://gpu:11434/ollama/v1"),
        ("openai", "http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("openai", "localhost:8000/v1", "http://localhost:8000/v1"),
    ],
)
def test_an_address_is_made_whole_the_way_people_shorten_it(name: str, given: str, address: str) -> None:
    assert address_of(PROVIDERS[name], given) == address


@pytest.mark.requirement("L9")
@pytest.mark.parametrize("given", ["ftp://x/v1", "http://", "unix:///run/x", "http://x:port", "http://[::1"])
def test_an_address_that_is_none_is_told(given: str) -> None:
    with pytest.raises(UsageError, match="openai"):
        address_of(PROVIDERS["openai"], given)
