"""The parameters of addresses, for JSON and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.application.store_entries import EntrySelection
from penstock.errors import StreamsError
from penstock.windows import LONG_MAX

Parameters = Mapping[str, str]
"""The parameters of an address; an empty text counts as absent, because forms send all their fields."""

DEFAULT_LIMIT: Final = 100
MOST_ENTRIES: Final = 1_000


class WrongParameterError(StreamsError):
    """A parameter of an address has an invalid value."""


def number(parameters: Parameters, name: str, most: int = LONG_MAX) -> int | None:
    """Return a whole number from 0 to `most`, None if absent.

    Raises WrongParameterError for other texts.
    """
    text = parameters.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > most:
        limit = "of 0 or more" if most == LONG_MAX else f"from 0 to {most}"
        raise WrongParameterError(f"Invalid value {text!r:.100} for {name}: expected a whole number {limit}.")
    return int(text)


def choice(parameters: Parameters, name: str, choices: Sequence[str]) -> str:
    """Return one of some words, by default the first; raises WrongParameterError for any other."""
    chosen = parameters.get(name) or choices[0]
    if chosen not in choices:
        raise WrongParameterError(f"Invalid value {chosen!r:.100} for {name}: expected one of {', '.join(choices)}.")
    return chosen


def selection(parameters: Parameters) -> tuple[str | None, EntrySelection, int]:
    """Return the topology, the selection of entries, and their limit; raises WrongParameterError."""
    from_time, to_time = number(parameters, "from_time"), number(parameters, "to_time")
    limit = number(parameters, "limit", MOST_ENTRIES)
    chosen = EntrySelection(
        parameters.get("key") or None,
        parameters.get("from") or None,
        parameters.get("to") or None,
        number(parameters, "partition"),
        0 if from_time is None else from_time,
        LONG_MAX if to_time is None else to_time,
    )
    return parameters.get("topology") or None, chosen, DEFAULT_LIMIT if limit is None else limit
