"""Writes llms.txt into the root of the site: each page with its title, its first sentence and its link, in the sections
of the table of contents (https://llmstxt.org). A link goes to the Markdown of the page, which models read best, or to
its HTML if docstrings make its content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

_log = logging.getLogger(__name__)

_END_OF_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|:$")


def first_sentence(doctree: nodes.document) -> str:
    """Return the first sentence of a page, empty if it has no paragraph."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):  # not in a table or a list
            return _END_OF_SENTENCE.split(" ".join(paragraph.astext().split()))[0]
    return ""


def _entries(app: Sphinx, toctree: addnodes.toctree) -> Iterator[str]:
    """Yield the lines of the pages in a table of contents, each followed by those of its own tables of contents."""
    for title, page in toctree["entries"]:
        doctree = app.env.get_doctree(page)
        sentence = first_sentence(doctree)
        if not sentence:
            _log.warning("the page has no first paragraph for llms.txt", location=page)
        shown = title or app.env.titles[page].astext()
        yield f"- [{shown}]({_link(app, page, doctree)}): {sentence}"
        for inner in doctree.findall(addnodes.toctree):
            yield from _entries(app, inner)


def _link(app: Sphinx, page: str, doctree: nodes.document) -> str:
    """Return the address of a page in the form that has its content."""
    if next(doctree.findall(addnodes.desc), None) is not None:
        return app.builder.get_target_uri(page)
    return f"_sources/{app.env.doc2path(page, base=False)}{app.config.html_sourcelink_suffix}"


def _lines(app: Sphinx, env: BuildEnvironment) -> Iterator[str]:
    """Yield the lines of llms.txt."""
    root = env.get_doctree(app.config.root_doc)
    yield f"# {app.config.project}"
    yield ""
    yield f"> {first_sentence(root)}"
    for toctree in root.findall(addnodes.toctree):
        yield ""
        yield f"## {toctree['caption']}"
        yield ""
        yield from _entries(app, toctree)


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        Path(app.outdir, "llms.txt").write_text("\n".join(_lines(app, app.env)) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the file when the pages are built."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
