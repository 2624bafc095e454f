"""The taps of a query, as messages in its mailbox.

One message has the tapped nodes, whose records the driver wants to see; the other has the last records that reached
them. The planner passes the first one to the tasks of each epoch, and the commit of an epoch adds to the second one.
Taps do not change the computations of tasks, so they need not be the same in a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.host.spark.protocol.rows import decode_message, encode_message

TAPS_FILE: Final = "taps"
TAPPED_FILE: Final = "tapped"


def write_taps(mailbox: Mailbox, taps: Mapping[str, int]) -> None:
    """Set the number of records to keep by node, from the next epoch on."""
    _write(mailbox, TAPS_FILE, dict(taps))


def read_taps(mailbox: Mailbox) -> dict[str, int]:
    """Return the number of records to keep of each node."""
    found: dict[str, int] = _read(mailbox, TAPS_FILE)
    return found


def write_tapped(mailbox: Mailbox, tapped: Iterable[Mapping[str, list[bytes]]]) -> None:
    """Append the records of the tasks of an epoch, by node, to those kept earlier."""
    taps = read_taps(mailbox)
    if not taps:
        return
    kept = read_tapped(mailbox)
    for records in tapped:
        for node, more in records.items():
            kept[node] = [*kept.get(node, ()), *more]
    _write(mailbox, TAPPED_FILE, {node: kept.get(node, [])[-limit:] for node, limit in taps.items()})


def read_tapped(mailbox: Mailbox) -> dict[str, list[bytes]]:
    """Return the last records of each node, newest last."""
    found: dict[str, list[bytes]] = _read(mailbox, TAPPED_FILE)
    return found


def _write(mailbox: Mailbox, name: str, content: Mapping[str, Any]) -> None:
    with suppress(OSError):  # the query has ended and its directory is gone, or the next epoch writes more
        mailbox.write(name, encode_message(content))


def _read(mailbox: Mailbox, name: str) -> Any:
    data = mailbox.read(name)
    return {} if data is None else decode_message(data)
