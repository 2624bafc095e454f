"""The common frame of all pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import urlencode

from penstock.tools.ui.markup import Markup, element
from penstock.tools.ui.parameters import Parameters

Sections = dict[str, Markup]
"""Parts of a page by their ids, in order."""

_OFFLINE: Final = "These figures are from when the page was loaded."


def no_sections(parameters: Parameters) -> Sections:
    """Return no sections."""
    return {}


class Page(NamedTuple):
    """A page.

    Args:
        path: its address.
        title: its name.
        live: makes the sections that change by themselves.
        fixed: makes the other sections, which follow them.
        files: further scripts and styles, by their names.
    """

    path: str
    title: str
    live: Callable[[Parameters], Sections] = no_sections
    fixed: Callable[[Parameters], Sections] = no_sections
    files: Sequence[str] = ()


def document(application_id: str, menu: Sequence[Page], page: Page, parameters: Parameters, added: Sections) -> str:
    """Return a complete page.

    Args:
        application_id: of the application.
        menu: all pages.
        page: the page to return.
        parameters: of its address.
        added: sections between those that change and the others.
    """
    sections = {**page.live(parameters), **added, **page.fixed(parameters)}
    query = f"?{urlencode(dict(parameters))}" if parameters else ""
    links = [element("a", each.title, href=each.path, aria_current="page" if each is page else None) for each in menu]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} · {application_id}"),
        element("link", rel="icon", href=_address("ui.svg")),
        *map(_loaded, (*page.files, "ui.css", "ui.js")),
    )
    body = element(
        "body",
        element("a", "Skip to content", class_="skip", href="#content"),
        element("header", element("strong", application_id), element("nav", *links, aria_label="Pages")),
        element(
            "main",
            element("h1", page.title),
            *(element("section", section, id=id) for id, section in sections.items()),
            id="content",
            tabindex="-1",
        ),
        element("footer", element("p", f"Penstock. {_OFFLINE}", id="live")),
        data_events=f"/events{page.path.rstrip('/')}{query}",
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _loaded(file: str) -> Markup:
    """Return the element that loads a script or a style."""
    if file.endswith(".css"):
        return element("link", rel="stylesheet", href=_address(file))
    return element("script", src=_address(file), defer=True)


@cache
def static_file(name: str) -> bytes:
    """Return the content of a file that pages load."""
    return files("penstock.tools.ui").joinpath("static", name).read_bytes()


@cache
def _address(name: str) -> str:
    """Return the address of a file that pages load.

    It changes with the content, so that browsers can cache the file.
    """
    return f"/static/{name}?{hashlib.sha256(static_file(name)).hexdigest()[:16]}"
