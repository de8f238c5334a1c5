"""Two published tokenizers, read from wheels that have their vocabularies. No network is needed."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
from collections.abc import Callable

import tiktoken

CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
"""What tiktoken expects of this vocabulary."""
_CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


@functools.cache
def tekken() -> tiktoken.Encoding:
    """The tokenizer of Mistral's models, which takes each digit for a token."""
    stored = importlib.resources.files("mistral_common") / "data" / "tekken_240718.json"
    found = json.loads(stored.read_bytes())
    size = found["config"]["default_vocab_size"] - found["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in found["vocab"][:size]}
    return tiktoken.Encoding(
        "tekken", pat_str=found["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}
    )


@functools.cache
def cl100k() -> tiktoken.Encoding:
    """The tokenizer of GPT-4, which takes up to three digits for a token."""
    stored = (importlib.resources.files("tiktoken_ext") / "data" / "cl100k_base.tiktoken").read_bytes()
    assert hashlib.sha256(stored).hexdigest() == CL100K_SHA256
    lines = (line.split() for line in stored.splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("cl100k", pat_str=_CL100K_PATTERN, mergeable_ranks=ranks, special_tokens={})


VOCABULARIES: dict[str, Callable[[], tiktoken.Encoding]] = {"tekken": tekken, "cl100k": cl100k}


def count(vocabulary: str, text: str) -> int:
    return len(VOCABULARIES[vocabulary]().encode_ordinary(text))
