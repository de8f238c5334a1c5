"""What a model reads about a block that it meant as a call and that could not be read (`providers.text_model`)."""

from __future__ import annotations

import msgspec

from holdfast.protocol.failures import Failure
from holdfast.protocol.untrusted import decode_untrusted


def unreadable(arguments: str) -> Failure:
    """Return why a block that a model wrote did not become a call (`providers.text_model`)."""
    try:
        said = decode_untrusted(arguments)
    except msgspec.DecodeError:
        said = {}
    why = said.get("why", "") if isinstance(said, dict) else ""
    reason = f": {why}" if why else ""
    message = (
        f"A call was not taken{reason}. Nothing ran. Write a call whole, exactly in the format that the system "
        "prompt describes."
    )
    return Failure("invalid_json", message)
