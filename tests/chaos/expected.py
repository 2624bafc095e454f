"""What an application leaves that nothing disturbs, and how that compares with what one under chaos has left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.testing import TopologyTestDriver
from tests.chaos import program, records
from tests.host.support import OutputRecord
from tests.support.call_answers import first_results

_USUAL_SHARE = 10
"""One of so many calls may be made again: 8 of 1,000 were in a run of 106 deeds."""

Rows = dict[str, list[tuple[bytes | None, bytes | None]]]


def undisturbed(rows: list[records.Row]) -> tuple[Rows, dict[str, dict[bytes, tuple[Any, int]]]]:
    """Return keys and values by topic, and the stores, as the test driver gives them for the same input."""
    written: Rows = {}
    with TopologyTestDriver(program.topology("x", 1, 1), {"application.id": "x"}) as driver:
        for topic, record in rows:
            driver.pipe_bytes(f"x-{topic}", record.key, record.value, record.timestamp)
        for produced in driver.read_all_bytes():
            written.setdefault(produced.topic.removeprefix("x-"), []).append((produced.key, produced.value))
        stores = {}
        for name in (program.LETTERS_STORE, program.ORDERS_STORE):
            store = driver.get_timestamped_key_value_store(name)
            assert store is not None
            with store.all() as entries:
                stores[name] = {key.encode(): (entry.value, entry.timestamp) for key, entry in entries}
    return written, stores


def living(found: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """Return the entries that a table has after its updates."""
    return {key: value for key, value in dict(found).items() if value is not None}


def is_strictly_growing(found: list[tuple[bytes | None, bytes | None]]) -> bool:
    """Return whether each count is larger than the one before of its key: none is there twice."""
    last: dict[bytes | None, int] = {}
    for key, value in found:
        count = int.from_bytes(value or b"", "big")
        if count <= last.get(key, 0):
            return False
        last[key] = count
    return True


def by_key(found: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, list[bytes | None]]:
    """Return the values of each key, in order."""
    result: dict[bytes | None, list[bytes | None]] = {}
    for key, value in found:
        result.setdefault(key, []).append(value)
    return result


def check_calls(rows: list[records.Row], read: Callable[[str], Sequence[OutputRecord]], made: Path, most: int) -> None:
    """Check that each record has one result of each operator with calls, that of its first answer, and that few calls
    were made again.

    Args:
        rows: the input.
        read: returns all records of a topic.
        made: the file of the calls.
        most: the largest number of calls that may have been made again.
    """
    calls = made.read_text().splitlines()
    again = len(calls)
    for operator, source in program.CALLING.items():
        asked = Counter((record.value or b"").decode() for topic, record in rows if topic == source)
        results = [(record.value or b"").decode() for record in read(operator)]
        assert Counter(result.partition(" ")[0] for result in results) == asked, operator
        answers = [(record.partition, record.value) for record in read(f"{operator}-answers")]
        assert set(results) <= set(first_results(answers, operator)), operator
        assert set(results) <= set(calls), operator
        again -= asked.total()
    usual = max(2 * program.MADE_AGAIN, len(calls) // _USUAL_SHARE)
    print(f"{len(calls)} calls: {again} were made again, of at most {min(most, usual)}")
    assert again <= min(most, usual)
