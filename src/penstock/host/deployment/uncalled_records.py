"""Records that wait for calls of an operator that the program no longer has, or that has lost its `calls`.

They stay in the store of the operator, and nothing takes them from it. A store with the name that operators give it is
found by this name, any other by the id of the call that one of its entries has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from penstock.errors import ProcessorStateError, counted
from penstock.plan.internal_topics import ANSWERS_SUFFIX
from penstock.plan.names import INBOX_SUFFIX
from penstock.processor.call_inbox import is_call_of
from penstock.processor.waiting_records import unpack_waiting

_log = logging.getLogger(__name__)


class UncalledStore(NamedTuple):
    """A store of waiting records that the program does not have.

    Args:
        store: its name.
        operator: the operator whose calls the records wait for.
        records: the number of records.
    """

    store: str
    operator: str
    records: int


def answers_topic(application_id: str, operator: str) -> str:
    """Return the answers topic of an operator."""
    return f"{application_id}-{operator}{ANSWERS_SUFFIX}"


def operators_with_answers(application_id: str, topics: Iterable[str]) -> set[str]:
    """Return the operators that have an answers topic among the topics of the brokers."""
    begin = f"{application_id}-"
    answers = (topic for topic in topics if topic.startswith(begin) and topic.endswith(ANSWERS_SUFFIX))
    return {topic.removeprefix(begin).removesuffix(ANSWERS_SUFFIX) for topic in answers}


def operator_of(store: str, operators: Collection[str], first_value: Callable[[], bytes | None]) -> str | None:
    """Return the operator whose calls the records of `store` wait for, None if it is no store of calls.

    Args:
        store: the name of the store.
        operators: those that have an answers topic.
        first_value: reads the value of an entry of the store, None without entries.
    """
    if store.endswith(INBOX_SUFFIX) and (named := store.removesuffix(INBOX_SUFFIX)) in operators:
        return named
    value = first_value() if operators else None
    if value is None:
        return None
    try:
        call_id = unpack_waiting(value, store).call_id
    except ProcessorStateError:
        return None
    return max((each for each in operators if is_call_of(each, call_id)), key=len, default=None)


def warn_of_uncalled_records(stores: Iterable[UncalledStore], drop: str) -> None:
    """Log the records that wait in stores that the program does not have.

    Args:
        stores: the stores.
        drop: how to give up the records of the store `{store}`, whose operator is `{operator}`.
    """
    for store, operator, records in sorted(stores):
        if records:
            has_own_name = store != operator + INBOX_SUFFIX
            _log.warning(
                "%s of operator %s wait%s for calls in store %s, and the program has no such operator with "
                "calls: nothing calls for them. Give the operator its name (named=%r) and its calls= again%s until no "
                "record waits, or give them up: %s.",
                counted(records, "record"),
                operator,
                "s" if records == 1 else "",
                store,
                operator,
                f", with store_name={store!r}," if has_own_name else "",
                drop.format(store=store, operator=operator),
            )
