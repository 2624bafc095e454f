"""The taps of a query, as files of its control directory: of which nodes the driver wants to see the records, and the
last records that have reached them.

The planner hands the first file to the tasks of each epoch, and the commit of an epoch adds to the second one. Taps
change nothing of what a task computes, so they need not be the same in a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.host.spark.protocol.rows import decode_message, encode_message

TAPS_FILE: Final = "taps"
TAPPED_FILE: Final = "tapped"


def write_taps(control: Path, taps: Mapping[str, int]) -> None:
    """Let the coming epochs keep so many records of each node; none of others."""
    _write(control / TAPS_FILE, dict(taps))


def read_taps(control: Path) -> dict[str, int]:
    """Return how many records of each node are to be kept."""
    found: dict[str, int] = _read(control / TAPS_FILE)
    return found


def write_tapped(control: Path, tapped: Iterable[Mapping[str, list[bytes]]]) -> None:
    """Add the records of the tasks of an epoch, by node, to those that were kept before."""
    taps = read_taps(control)
    if not taps:
        return
    kept = read_tapped(control)
    for records in tapped:
        for node, more in records.items():
            kept[node] = [*kept.get(node, ()), *more]
    _write(control / TAPPED_FILE, {node: kept.get(node, [])[-limit:] for node, limit in taps.items()})


def read_tapped(control: Path) -> dict[str, list[bytes]]:
    """Return the last records of each node, the newest last."""
    found: dict[str, list[bytes]] = _read(control / TAPPED_FILE)
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` so that a reader sees all of it, or what was there before."""
    with suppress(OSError):  # the query has ended, and its directory with it; or the next epoch brings more
        written = path.with_suffix(".new")
        written.write_bytes(encode_message(content))
        written.replace(path)


def _read(path: Path) -> Any:
    try:
        return decode_message(path.read_bytes())
    except FileNotFoundError:
        return {}
