"""Which names topics may have (Kafka class: Topic)."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
"""The most characters of a name."""

LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
"""What a name consists of."""


def why_illegal(name: str) -> str | None:
    """Return why no topic can be called `name`, to follow the name in a message; None if one can."""
    if not name:
        return "is empty"
    if name in (".", ".."):
        return 'is "." or ".."'
    if len(name) > MAX_LENGTH:
        return f"has {len(name)} characters, and {MAX_LENGTH} are possible"
    if LEGAL.fullmatch(name) is None:
        return "has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
