"""The settings of the site that `make docs` builds from the pages of the repository.

The source directory is the root of the repository, so that a link between pages works on GitHub and on the site. The
build reads no network.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "extensions")]  # the packages of the clone, not installed ones

project = "Penstock"
author = "The Penstock maintainers"
version = release = import_module("penstock").__version__  # of the commit or tag that is checked out

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "public_api", "llms_txt"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "benchmarks/README.md", "packages/*/README.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "examples", "scripts"]

myst_heading_anchors = 4  # GitHub's anchors of headings

nitpicky = True
# Types in signatures that have no entry in this site, shown without a link: of Python and of other packages, since the
# build reads no network; type variables; and types behind the public names, which programs do not import.
_BEHIND_THE_API = (
    "application.uncaught_errors.UncaughtError",
    "calendar_periods.CalendarPeriods",
    "client.api.GroupDescription",
    r"dsl.column_functions.\w+",
    "host.api.StateQueries",
    r"host.spark.(checkpoints.savepoint.StoreFigures|frames.topic_source.TopicReader)",
    "host.threads.takeover.(Store|Input)",
    "metrics.(sensors.SensorReport|measurements.Sampled)",
    r"plan.(nodes.stream.ProcessorCalling|picture.Figure|processor_calls.ProcessorCalls|subtopology.\w+|topic_history.TopicHistory)",
    r"processor.(calls.CallSpec|column_functions.\w+|model.MakesModel|waiting_records.WaitingRecord)",
    "record.ArrayColumn",
    "state.(api.StoreSource|bytes_store.BufferedBytesStore|table.StoreTable|ttl.Ttl)",
    r"state.(\w+_store.Typed\w+|query.request.InStore)",
    r"state.query.queryable.(\w+StoreType|StateStoreProvider)",
)
nitpick_ignore_regex = [
    ("py:.*", r"(?!penstock\.)\w+\..*"),
    ("py:(class|obj)", r"(penstock\.[\w.]+\.)?(A|K|V|D|P|R|K_co|V_co|KR|VR|KIn|VIn|KOut|VOut|VO|T|W|N|M|_S)"),
    ("py:class", "ArrowStream|InterchangeFrame"),  # what DataFrames have in common
    ("py:class", "Duration"),  # a whole number of ms, or a timedelta
    ("py:class", rf"penstock\.({'|'.join(_BEHIND_THE_API)})"),
]

default_role = "literal"  # docstrings have names of code between single backticks
autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)(:\d+)?(/.*)?"]  # of an application that runs
linkcheck_timeout, linkcheck_retries = 20, 2  # seconds

html_theme = "furo"
html_title = f"Penstock {release}"  # readers of an old version see which one it is
html_sourcelink_suffix = ""  # so that links between the Markdown files of the site work
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "extensions" / "search_scorer.js")
html_extra_path = ["site-root"]  # sends readers of the root of the site on to docs/index.html
