"""The state: the stores, and the entries of one."""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import StreamsError
from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import LONGEST, NONE, duration, number, size
from penstock.tools.ui.markup import Content, Markup, element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import commits_table, store_query
from penstock.tools.ui.parameters import DEFAULT_LIMIT, MOST_ENTRIES, Parameters, selection

_STORE_COLUMNS: Final = (
    *("Store", "Topology", "Kind", "Entries#", "Bytes#", "Segments#", "Bytes of segments#", "Used by"),
)
_FIELDS: Final = (
    ("key", "Key", "text"),
    ("from", "From key", "text"),
    ("to", "To key", "text"),
    ("from_time", "From time (ms)", "number"),
    ("to_time", "To time (ms)", "number"),
    ("partition", "Partition", "number"),
    ("limit", f"Rows, up to {MOST_ENTRIES}", "number"),
)
"""The fields of the form for entries: parameter, label and kind."""


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page(
        "/state",
        "State",
        lambda parameters: {"commits": commits_table(answers.overview())},
        lambda parameters: _stores(answers, parameters),
    )


def _stores(answers: Answers, parameters: Parameters) -> Sections:
    try:
        stores = answers.stores()["stores"]
    except StreamsError as error:
        return {"stores": element("p", str(error), class_="problem")}
    rows = [
        (
            element("a", each["store"], href=f"/state?{store_query(each['topology'], each['store'])}"),
            each["topology"],
            each["kind"].replace("_", " "),
            number(each["entries"]),
            NONE if each["bytes"] is None else size(each["bytes"]),
            number(each["segments"]),
            NONE if each["segment_bytes"] is None else size(each["segment_bytes"]),
            ", ".join(each["processors"]),
        )
        for each in stores
    ]
    sections = {"stores": table("Stores", _STORE_COLUMNS, rows, "The topology has no stores.")}
    if "store" in parameters:
        sections["form"] = _form(parameters)
        sections["entries"] = _entries(answers, parameters)
    return sections


def _entries(answers: Answers, parameters: Parameters) -> Markup:
    try:
        topology, chosen, limit = selection(parameters)
        answer = answers.entries(parameters["store"], topology, chosen, limit)
    except StreamsError as error:
        return element("p", str(error), class_="problem", role="alert")
    fields = list(dict.fromkeys(field for entry in answer["entries"] for field in entry))
    rows = [[_value(field, entry.get(field)) for field in fields] for entry in answer["entries"]]
    commit = answer["commit"]
    read = "Nothing is committed yet" if commit is None else f"As of commit {commit['number']}"
    age = "" if commit is None else f", made {duration(commit['age_ms'])} before this page was loaded"
    more = f" There are more entries than these {len(rows)}." if answer["more"] else ""
    return joined(
        [
            table("Entries", [field.replace("_", " ") for field in fields], rows, "No entry."),
            element("p", f"{read}{age}.{more}", class_="empty"),
        ]
    )


def _form(parameters: Parameters) -> Markup:
    """Return the form for the selection of a store's entries."""
    hidden = [
        element("input", type="hidden", name=name, value=parameters[name])
        for name in ("store", "topology")
        if name in parameters
    ]
    fields = [
        element(
            "label",
            label,
            element(
                "input",
                type=kind,
                name=name,
                value=parameters.get(name, str(DEFAULT_LIMIT) if name == "limit" else ""),
                min="0" if kind == "number" else None,
            ),
        )
        for name, label, kind in _FIELDS
    ]
    title = element("h2", f"Entries of {parameters['store']}")
    button = element("button", "Show", type="submit")
    return joined([title, element("form", *hidden, *fields, button, action="/state", method="get")])


def _value(field: str, value: Any) -> Content:
    """Return a partition, a key, a value or a time of an entry, shortened."""
    if value is None:
        return NONE
    if field == "partition":
        return number(value)
    if field.startswith("window_") or field in ("timestamp", "valid_to"):
        return joined([time_text(value), element("small", f"{value} ms")])
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    cut = f"... ({len(text):,} characters)" if len(text) > LONGEST else ""
    return element("code", f"{text[:LONGEST]}{cut}")
