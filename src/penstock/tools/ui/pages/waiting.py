"""The records that wait: for the answers of calls, and parked ones for another attempt."""

from __future__ import annotations

import shlex
from typing import Final

from penstock.errors import StreamsError, counted
from penstock.notebook import time_text, xml_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import LONGEST, NONE, duration, number, rate, size
from penstock.tools.ui.markup import Markup, element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import of_topology, store_query
from penstock.tools.ui.parameters import Parameters
from penstock.tools.ui.waiting_schema import CallsAnswer, ParkedAnswer, ParkedKeyAnswer, ParkedKeysAnswer

_CALL_COLUMNS: Final = (
    *("Operator", "In flight#", "Capacity of a process#", "Waiting#", "Answered#", "Answers#"),
    *("Failed#", "Failures#", "Retries#", "p50#", "p99#", "Longest time#"),
)
_PARKED_COLUMNS: Final = ("Operator", "Store", "Records#")
_KEY_COLUMNS: Final = (
    *("Key", "Partition#", "Records#", "Attempts#", "Next attempt", "First error", "Timestamp", "Input record"),
)


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page("/waiting", "Waiting", lambda parameters: _operators(answers), lambda given: _keys(answers, given))


def _operators(answers: Answers) -> Sections:
    found = answers.waiting.operators()
    calls, parked = [_calls(each) for each in found["calls"]], [_parked(each) for each in found["parked"]]
    return {
        "calls": table("Calls", _CALL_COLUMNS, calls, "No operator has calls."),
        "parked": table("Parked records", _PARKED_COLUMNS, parked, "No operator parks records."),
    }


def _calls(each: CallsAnswer) -> tuple[str, ...]:
    times = each["latency_p50_ms"], each["latency_p99_ms"], each["latency_max_ms"]
    return (
        of_topology(each["topology"], each["node"]),
        number(each["in_flight"]),
        number(each["capacity"]),
        number(each["waiting"]),
        number(each["answered"]),
        rate(each["answered_per_second"]),
        number(each["failed"]),
        rate(each["failed_per_second"]),
        number(each["retries"]),
        *(NONE if time is None else duration(time) for time in times),
    )


def _parked(each: ParkedAnswer) -> tuple[str, Markup, str]:
    address = f"/waiting?{store_query(each['topology'], each['store'])}"
    return (
        of_topology(each["topology"], each["node"]),
        element("a", each["store"], href=address),
        number(each["records"]),
    )


def _keys(answers: Answers, parameters: Parameters) -> Sections:
    """Return the parked keys of the store that is chosen."""
    if "store" not in parameters:
        return {}
    try:
        found = answers.waiting.parked_keys(parameters["store"], parameters.get("topology") or None)
    except StreamsError as error:
        return {"keys": element("p", str(error), class_="problem", role="alert")}
    rows = [_key(each) for each in found["first"]]
    more = found["keys"] - len(rows)
    parts = [
        element("h2", f"Keys in {found['store']}"),
        element("p", _summary(found)),
        table("Parked keys", _KEY_COLUMNS, rows, "No record is parked."),
    ]
    if more:
        parts.append(element("p", f"There are {counted(more, 'other key')}.", class_="empty"))
    if rows:
        parts.append(_commands(found["store"]))
    return {"keys": joined(parts)}


def _summary(found: ParkedKeysAnswer) -> str:
    oldest, due = found["oldest_at_ms"], found["next_attempt_at_ms"]
    if oldest is None or due is None:
        return "No record is parked at the newest commit."
    records = f"{counted(found['records'], 'record')} of {counted(found['keys'], 'key')} ({size(found['bytes'])})"
    attempt = time_text(due) if due else "now"
    return f"At the newest commit, {records} wait. The oldest is of {time_text(oldest)}; the next attempt: {attempt}."


def _key(each: ParkedKeyAnswer) -> tuple[str | Markup, ...]:
    place = NONE if each["topic"] is None else f"{each['topic']}-{each['source_partition']}, offset {each['offset']}"
    return (
        element("code", each["key"]),
        number(each["partition"]),
        number(each["records"]),
        number(each["attempts"]),
        time_text(each["next_attempt_at_ms"]) if each["next_attempt_at_ms"] else "now",
        each["failure"].partition("\n")[0],
        time_text(each["timestamp"]),
        place,
    )


def _commands(store: str) -> Markup:
    """Return the commands that try the records again, or drop them."""
    named = xml_text(shlex.quote(store[:LONGEST]))
    lines = "".join(f"penstock parked {action} PROGRAM.py {named} --all\n" for action in ("retry", "drop"))
    return joined([element("p", "To try all of them again at once, or to drop them:"), element("pre", lines)])
