"""Errors that stopped all tasks, records that handlers let pass, and dead letters."""

from __future__ import annotations

from typing import Final

from penstock.errors import StreamsError
from penstock.notebook import time_text
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.formatting import LONGEST, NONE, number
from penstock.tools.ui.markup import Content, Markup, element, joined, table
from penstock.tools.ui.pages.layout import Page, Sections
from penstock.tools.ui.pages.sections import dropped_table
from penstock.tools.ui.parameters import Parameters
from penstock.tools.ui.schema import DroppedAnswer, ErrorsAnswer, FailedRecordAnswer, KeptLetterAnswer

_PARTS: Final = ("key", "value")


def page(answers: Answers) -> Page:
    """Return the page."""
    return Page(
        "/errors",
        "Errors",
        lambda parameters: _errors(answers.errors()),
        lambda parameters: _dead_letters(answers, parameters),
    )


def _errors(answer: ErrorsAnswer) -> Sections:
    """Return the errors, the newest first."""
    shown = [
        element(
            "details",
            element("summary", f"{time_text(each['seen_at_ms'])} {each['error'].splitlines()[0][:LONGEST]}"),
            element("p", f"The uncaught exception handler answered {each['response']}."),
            *([] if each["record"] is None else [_record(each["record"])]),
            element("pre", each["traceback"]),
        )
        for each in answer["errors"]
    ]
    count = (
        "Errors that stop all tasks are known only to the process that runs the application."
        if answer["count"] is None
        else f"Errors that have stopped all tasks since the start: {answer['count']}."
    )
    passed = [] if answer["passed"] is None else [_passed(answer["passed"])]
    return {"count": element("p", count), "errors": joined(shown), "passed": joined(passed)}


def _passed(passed: list[DroppedAnswer]) -> Markup:
    """Return the number and places of records that a handler let pass."""
    total = sum(each["records"] for each in passed)
    shown = [element("p", f"Records that a handler let pass since the start: {number(total)}.")]
    return joined([*shown, dropped_table("Records by node", passed, "")] if passed else shown)


def _record(record: FailedRecordAnswer) -> Markup:
    """Return the record on which a task failed."""
    at = NONE if record["topic"] is None else f"{record['topic']}-{record['partition']} at {record['offset']}"
    rows = [
        ("Node", record["node"]),
        ("Input record", at),
        *((part.capitalize(), _code(record[part])) for part in _PARTS),
    ]
    return table("Record", ("What", "Value"), rows, "")


def _dead_letters(answers: Answers, parameters: Parameters) -> Sections:
    """Return the instructions for a redrive and, on request, the dead letters."""
    topic = answers.dead_letter_topic
    if topic is None:
        return {}
    parts = _how_back(topic, answers.redrive_command())
    if "dead_letters" not in parameters:
        parts.append(element("p", element("a", "Show what it would write", href="/errors?dead_letters=show")))
        return {"dead-letters": joined(parts)}
    try:
        answer = answers.dead_letters()
    except StreamsError as error:
        return {"dead-letters": joined([*parts, element("p", str(error), class_="problem", role="alert")])}
    parts = _how_back(topic, answer["command"])
    rows = [
        (
            f"{each.topic}-{each.partition}",
            each.target,
            each.exception,
            number(each.records),
            each.message[:LONGEST],
        )
        for each in answer["letters"]
    ]
    columns = ("From", "To", "Error", "Records#", "First message")
    parts.append(table("Dead letters", columns, rows, "No dead letter is left to be written back."))
    if answer["without_source"]:
        text = f"Errors of punctuators, which have no record: {number(answer['without_source'])}."
        parts.append(element("p", text, class_="empty"))
    if answer["invalid"]:
        text = f"Records that are not dead letters, which are skipped: {number(answer['invalid'])}."
        parts.append(element("p", text, class_="empty"))
    parts += [element("h3", "Last dead letters"), *map(_letter, answer["last"])]
    if not answer["last"]:
        parts.append(element("p", f"The topic {topic} has no records.", class_="empty"))
    return {"dead-letters": joined(parts)}


def _how_back(topic: str, command: str) -> list[Content]:
    """Return the place of dead letters, and the command that writes them back."""
    return [
        element("h2", "Dead letters"),
        element("p", f"Records that could not be processed are in the topic {topic}. This writes them back: "),
        element("pre", command),
    ]


def _letter(letter: KeptLetterAnswer) -> Markup:
    """Return a collapsible dead letter: its record, its headers, and the command that redrives it."""
    source = letter["source"]
    at = NONE if source is None else f"{source['topic']}-{source['partition']} at {source['offset']}"
    error = "not a dead letter" if letter["exception"] is None else f"{letter['exception']}: {letter['message']}"
    rows = [
        ("Redriven", "yes" if letter["redriven"] else "no"),
        ("Input record", at),
        ("Dead letter", f"partition {letter['partition']} at {letter['offset']}"),
        *((part.capitalize(), _code(letter[part])) for part in _PARTS),
    ]
    headers = [(str(name), _code(value)) for name, value in letter["headers"]]
    command = letter["command"]
    return element(
        "details",
        element("summary", f"{time_text(letter['timestamp'])} {at} {error.splitlines()[0][:LONGEST]}"),
        table("Record", ("What", "Value"), rows, ""),
        table("Headers", ("Header", "Value"), headers, "It has no headers."),
        *([element("pre", letter["stacktrace"])] if letter["stacktrace"] else []),
        *([] if command is None else [element("p", "This writes it back:"), element("pre", command)]),
    )


def _code(text: str | None) -> str | Markup:
    return NONE if text is None else element("code", text)
