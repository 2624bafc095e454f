"""Errors of the client of OpenLineage as text, without values of its configuration, which may be secrets.

The libraries below the client quote them: an API key with a line break, a URL with a password, a wrong setting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_MASK: Final = "***"
_SHORTEST: Final = 4
"""Shorter values are no secrets, and also occur in words."""


def masked(error: BaseException, *configurations: object) -> str:
    """Return the type and the message of an error, with `***` in place of the values of the configuration.

    Args:
        error: the error.
        configurations: of the client, in addition to its environment variables.
    """
    text = f"{type(error).__name__}: {error}"
    environment = {name: value for name, value in os.environ.items() if name.startswith("OPENLINEAGE")}
    values = {value for each in (environment, *configurations) for value in _values(each)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, _MASK)
    return text


def _values(configuration: Any) -> Iterator[str]:
    """Yield the texts and numbers in a configuration, but not the types of its parts."""
    if isinstance(configuration, str | int | float):
        value = str(configuration).strip()
        if len(value) >= _SHORTEST:
            yield value
    elif isinstance(configuration, Mapping):
        for name, value in configuration.items():
            if name != "type":
                yield from _values(value)
    elif isinstance(configuration, Sequence):
        for value in configuration:
            yield from _values(value)
