"""Shows the public names of Penstock as programs see them, for the pages in docs/api.

The pages list the public names, as directives of autodoc in comments, each followed by a table for readers without the
site (scripts/api_tables.py). The site has the directives in place of the comments and the tables. What stands behind a
name and has no page itself is not shown: base classes that only share code, whose methods an entry takes over with
`inherited-members`, and constructors that only Penstock calls, which an entry leaves out with `class-doc-from: class`.
The errors are on a page of their own (scripts/errors.py), whose headings are their targets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

import penstock
from penstock import errors

PAGES: Final = Path(__file__).resolve().parents[1] / "api"
ERRORS: Final = "docs/errors"
ENTRIES: Final = re.compile(r"^<!-- entries\n(?P<directives>(?:.*\n)*?)-->\n\n(?P<table>(?:\|.*\n)*)", re.MULTILINE)
"""The entries of a section in a page, and the table that follows."""


def documented() -> Mapping[str, Any]:
    """Return the objects that the pages document, by their public names."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        for path in re.findall(r"^\.\. auto\w+:: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, name = path.rpartition(".")
            found[path] = getattr(import_module(module), name)
    return found


def _show_entries(app: Sphinx, page: str, source: list[str]) -> None:
    """Show the entries of a page in place of its tables."""
    if page.startswith("docs/api/"):
        source[0] = ENTRIES.sub(lambda found: f"```{{eval-rst}}\n{found['directives']}\n```\n", source[0])


def _show_documented_bases(app: Sphinx, name: str, obj: Any, options: Any, bases: list[Any]) -> None:
    classes = {value for value in documented().values() if isinstance(value, type)}
    bases[:] = [base for base in bases if getattr(base, "__origin__", base) in classes]


def _adjust_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Leave out constructors that programs do not call, and show the defaults that dataclasses make as `...`."""
    if what == "class" and options.class_doc_from == "class":
        return "", returns
    if signature is not None and "<factory>" in signature:
        return signature.replace("<factory>", "..."), returns
    return None


def _skip_field_of_tuple(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, which Python documents by their numbers; the signature has them."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def _drop_docstring_of_tuple(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Leave out what Python says of the constructors of named tuples."""
    lines[:] = [line for line in lines if not line.startswith("Create new instance of ")]


def _complete_names(app: Sphinx, doctree: nodes.document) -> None:
    """Give names without a module, as docstrings have them, the one that programs import them from."""
    if app.env.docname == "docs/api/kip28":  # has names of its own that are also in penstock
        return
    for reference in doctree.findall(pending_xref):
        name = reference.get("reftarget", "")
        if reference.get("refdomain") != "py":
            continue
        if name in vars(errors):
            reference["reftarget"] = f"{errors.__name__}.{name}"
        elif name in penstock.__all__:
            reference["reftarget"] = f"penstock.{name}"


def _note_errors(app: Sphinx, doctree: nodes.document) -> None:
    """Make the headings of the page on errors the targets of their names."""
    if app.env.docname != ERRORS:
        return
    for section in doctree.findall(nodes.section):
        name = section[0].astext()
        if name in vars(errors):
            app.env.domains.python_domain.note_object(
                f"{errors.__name__}.{name}", "exception", section["ids"][0], location=section
            )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the events of autodoc and of the build."""
    app.connect("source-read", _show_entries)
    app.connect("autodoc-process-bases", _show_documented_bases)
    app.connect("autodoc-process-signature", _adjust_signature)
    app.connect("autodoc-process-docstring", _drop_docstring_of_tuple)
    app.connect("autodoc-skip-member", _skip_field_of_tuple)
    app.connect("doctree-read", _complete_names)
    app.connect("doctree-read", _note_errors)
    return {"parallel_read_safe": True}
