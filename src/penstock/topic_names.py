"""The rules for topic names (Kafka class: Topic), and the names of changelog topics."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
"""The maximum length of a name, in characters."""

LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
"""The pattern of a legal name."""


CHANGELOG_SUFFIX: Final = "-changelog"
"""The end of the name of a changelog topic."""


def changelog_name(application_id: str, store: str) -> str:
    """Return the name of the changelog topic of a store, which its serdes receive even if there is no such topic."""
    return f"{application_id}-{store}{CHANGELOG_SUFFIX}"


def why_illegal(name: str) -> str | None:
    """Return the reason why `name` is not a legal topic name; None if it is.

    The reason follows the name in a message.
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return 'is "." or ".."'
    if len(name) > MAX_LENGTH:
        return f"has {len(name)} characters, and {MAX_LENGTH} are possible"
    if LEGAL.fullmatch(name) is None:
        return "has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
