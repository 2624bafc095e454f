"""The settings of the site that `make docs` builds from the pages of the repository.

The source directory is the root of the repository, so that a link between pages works on GitHub and on the site. The
build reads no network.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))  # the packages of the clone, not installed ones

project = "Penstock"
author = "The Penstock maintainers"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "examples", "scripts"]

myst_heading_anchors = 4  # GitHub's anchors of headings

nitpicky = True

html_theme = "furo"
html_title = "Penstock"
html_extra_path = ["site-root"]  # sends readers of the root of the site on to docs/index.html
