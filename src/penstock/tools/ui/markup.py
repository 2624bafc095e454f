"""HTML with safe text: all content except Markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from penstock.notebook import xml_text

_VOID: Final = frozenset(("input", "img", "link", "meta"))


class Markup(str):
    """HTML made by `element`."""

    __slots__ = ()


Content = str | Markup
"""Text, which is escaped, or HTML."""


def element(tag: str, *content: Content, **attributes: str | bool | None) -> Markup:
    """Return an element of HTML.

    Args:
        tag: name of the element.
        content: its content.
        attributes: by name, with `_` for `-` and at the end of a Python keyword; True for an attribute without a value;
            None and False omit the attribute.
    """
    start = _start(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    return Markup(start if tag in _VOID else f"{start}{joined(content)}</{tag}>")


def joined(parts: Iterable[Content]) -> Markup:
    """Return the concatenation of parts of a page."""
    return Markup("".join([_text(part) for part in parts]))


def _text(part: Content) -> str:
    """Return a part of a page, escaped unless it is Markup."""
    return part if isinstance(part, Markup) else escape(xml_text(part))


def _start(tag: str, attributes: Mapping[str, str | bool | None]) -> str:
    """Return the start of an element; see `element`."""
    shown = [
        f" {name}" if value is True else f' {name}="{escape(xml_text(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    ]
    return f"<{tag}{''.join(shown)}>"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Content]], empty: str) -> Markup:
    """Return a table that can be scrolled horizontally.

    Args:
        caption: of the table.
        columns: their names; a column whose name ends with `#` has numbers.
        rows: the cells.
        empty: the text in place of a table without rows.
    """
    classes = ["number" if column.endswith("#") else None for column in columns]
    head = [
        element("th", column.rstrip("#"), scope="col", class_=kind)
        for column, kind in zip(columns, classes, strict=True)
    ]
    starts = [_start("td", {"class": kind}) for kind in classes]  # once, for the tables of a thousand nodes
    body = [
        Markup(f"<tr>{''.join([f'{start}{_text(cell)}</td>' for start, cell in zip(starts, row, strict=True)])}</tr>")
        for row in rows
    ]
    if not body:
        return element("p", empty, class_="empty")
    shown = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    return element("div", shown, class_="wide", tabindex="0", role="region", aria_label=caption)
