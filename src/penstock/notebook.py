"""Forms of objects in notebooks: text, HTML, SVG and mermaid, by MIME type.

An object passes a function for each form; only those requested by the notebook are called. Everything from users is
escaped and shortened here: names, keys and values may contain anything, and be of any size.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final, NamedTuple

from penstock.errors import StreamsError

TEXT: Final = "text/plain"
HTML: Final = "text/html"
SVG: Final = "image/svg+xml"
MERMAID: Final = "text/vnd.mermaid"

Forms = Mapping[str, Callable[[], str]]
"""The functions that make the forms of an object, by MIME type."""

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot contain, even escaped."""

_LONGEST: Final = 120
"""The number of characters shown of a key or a value."""


class TableRows(NamedTuple):
    """The first rows of a table as strings, with the column names. more: whether the table has more rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: bool


def is_in_notebook() -> bool:
    """Return whether the program runs in cells: in a notebook, or in IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def mime_bundle(
    forms: Forms, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> dict[str, str]:
    """Return the requested `forms` by MIME type (IPython: _repr_mimebundle_).

    Args:
        forms: all forms of the object.
        include: MIME types; None for all.
        exclude: MIME types; None excludes no form.
    """
    return {
        mime: make()
        for mime, make in forms.items()
        if (not include or mime in include) and not (exclude and mime in exclude)
    }


def value_text(value: Any, longest: int = _LONGEST) -> str:
    """Return a key or a value as one line of up to `longest` characters."""
    try:
        text = repr(value)
    except Exception as error:  # from the user's class
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    line = " ".join(xml_text(text[: 2 * longest]).split("\n"))
    return line if len(line) <= longest else f"{line[:longest]}..."


def time_text(time_ms: int | None) -> str:
    """Return a time (ms) in UTC, empty for None. Times outside the calendar stay numbers."""
    if time_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1_000:03}"
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def xml_text(text: str) -> str:
    """Replace each character that HTML and XML cannot contain; the result is not escaped."""
    return _NOT_IN_XML.sub("\ufffd", text)


def preformatted(text: str) -> str:
    """Return `text` as HTML with its line breaks."""
    return f"<pre>{_escaped(text)}</pre>"


def with_heading(title: str, facts: Mapping[str, str], content: str) -> str:
    """Return HTML: `title`, `facts` by name, then `content` (HTML)."""
    shown = "".join(f" &middot; {_escaped(name)}: <code>{_escaped(fact)}</code>" for name, fact in facts.items())
    return f"<div><p><strong>{_escaped(title)}</strong>{shown}</p>{content}</div>"


def heading_text(title: str, facts: Mapping[str, str]) -> str:
    """Return `title` and `facts` by name as one line of text."""
    shown = ", ".join(f"{name}: {fact}" for name, fact in facts.items())
    return f"{title} ({shown})" if shown else title


def failed(title: str, error: StreamsError) -> Forms:
    """Return the forms of an object that cannot be shown because of `error`."""
    return {TEXT: lambda: f"{title}: {error}", HTML: lambda: with_heading(title, {}, preformatted(str(error)))}


def table(title: str, facts: Mapping[str, str], rows: TableRows) -> Forms:
    """Return the forms of an object shown as a table."""
    return {
        TEXT: lambda: _text_table(heading_text(title, facts), rows),
        HTML: lambda: with_heading(title, facts, _html_table(rows)),
    }


def _html_table(rows: TableRows) -> str:
    head = "".join(f"<th>{_escaped(name)}</th>" for name in rows.columns)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows.rows)
    more = f"<p>{_escaped(_more(rows))}</p>" if rows.more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text_table(title: str, rows: TableRows) -> str:
    lines = [rows.columns, *rows.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join([title, *body, *([_more(rows)] if rows.more else [])])


def _more(rows: TableRows) -> str:
    return f"... more than these {len(rows.rows)} rows"


def _escaped(text: str) -> str:
    return escape(xml_text(text))
