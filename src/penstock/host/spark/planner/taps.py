"""The taps of a query, as files of its control directory.

One file has the tapped nodes, whose records the driver wants to see; the other has the last records that reached them.
The planner passes the first file to the tasks of each epoch, and the commit of an epoch adds to the second one. Taps do
not change the computations of tasks, so they need not be the same in a replay.
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
    """Set the number of records to keep by node, from the next epoch on."""
    _write(control / TAPS_FILE, dict(taps))


def read_taps(control: Path) -> dict[str, int]:
    """Return the number of records to keep of each node."""
    found: dict[str, int] = _read(control / TAPS_FILE)
    return found


def write_tapped(control: Path, tapped: Iterable[Mapping[str, list[bytes]]]) -> None:
    """Append the records of the tasks of an epoch, by node, to those kept earlier."""
    taps = read_taps(control)
    if not taps:
        return
    kept = read_tapped(control)
    for records in tapped:
        for node, more in records.items():
            kept[node] = [*kept.get(node, ()), *more]
    _write(control / TAPPED_FILE, {node: kept.get(node, [])[-limit:] for node, limit in taps.items()})


def read_tapped(control: Path) -> dict[str, list[bytes]]:
    """Return the last records of each node, newest last."""
    found: dict[str, list[bytes]] = _read(control / TAPPED_FILE)
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` atomically."""
    with suppress(OSError):  # the query has ended and its directory is gone, or the next epoch writes more
        written = path.with_suffix(".new")
        written.write_bytes(encode_message(content))
        written.replace(path)


def _read(path: Path) -> Any:
    try:
        return decode_message(path.read_bytes())
    except FileNotFoundError:
        return {}
