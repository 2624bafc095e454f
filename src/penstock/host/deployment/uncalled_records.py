"""Records that wait for calls of an operator that the program no longer has, or that has lost its `calls`.

They stay in the store of the operator, and nothing takes them from it. Only stores with the name that operators give
them are found; of any other, nothing tells what it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from penstock.errors import counted
from penstock.plan.internal_topics import ANSWERS_SUFFIX
from penstock.plan.names import INBOX_SUFFIX

_log = logging.getLogger(__name__)


def answers_topic(application_id: str, store: str) -> str:
    """Return the answers topic of the operator whose waiting records are in `store`."""
    return f"{application_id}-{store.removesuffix(INBOX_SUFFIX)}{ANSWERS_SUFFIX}"


def stores_of_calls(application_id: str, stores: Iterable[str], topics: Collection[str]) -> Iterator[str]:
    """Yield those of `stores` that are named as stores of calls, and whose operator has an answers topic.

    topics: of the brokers.
    """
    for store in stores:
        if store.endswith(INBOX_SUFFIX) and answers_topic(application_id, store) in topics:
            yield store


def warn_of_uncalled_records(waiting: Mapping[str, int], drop: str) -> None:
    """Log the records that wait in stores that the program does not have.

    Args:
        waiting: the number of records by store.
        drop: how to give up those of the store `{store}`.
    """
    for store, records in sorted(waiting.items()):
        if records:
            operator = store.removesuffix(INBOX_SUFFIX)
            _log.warning(
                "%s of operator %s wait%s for calls in store %s, and the program has no such operator with "
                "calls: nothing calls for them. Give the operator its name (named=%r) and its calls= again until no "
                "record waits, or give them up: %s.",
                counted(records, "record"),
                operator,
                "s" if records == 1 else "",
                store,
                operator,
                drop.format(store=store),
            )
