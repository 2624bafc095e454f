"""llms.txt lists the pages of a site, each with its title, its first sentence and its link."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "extensions")!r})
project = "Weir"
extensions = ["myst_parser", "llms_txt"]
html_theme = "basic"
html_sourcelink_suffix = ""
"""

INDEX = """# Weir

Streams for everybody. See below.

```{toctree}
:caption: Tutorials

first
Second steps <guides/index>
```

```{toctree}
:caption: Reference

reference
names
```
"""

GUIDES = """# Guides

What to do:

```{toctree}
inner
```
"""

TABLE_FIRST = """# Reference

| a | b |
|---|---|
| cell | cell |

What `weir.open()` does. And more.
"""


def build(source: Path) -> tuple[str, Path]:
    """Build the site in `source`; return what it warned of, and its directory."""
    command = [sys.executable, "-m", "sphinx", "-q", str(source), str(source / "site")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return ended.stderr, source / "site"


def test_llms_txt_follows_the_table_of_contents(tmp_path: Path) -> None:
    (tmp_path / "guides").mkdir()
    for name, text in {
        "conf.py": CONF,
        "index.md": INDEX,
        "first.md": "# The first step\n\nRun `weir`. Then wait.\n",
        "guides/index.md": GUIDES,
        "guides/inner.md": "# Inner\n\n## Part\n\nHow inner things work.\n",
        "reference.md": TABLE_FIRST,
        "names.md": "# Names\n\nAll of them.\n\n```{py:function} open(name)\nOpens a weir.\n```\n",
    }.items():
        (tmp_path / name).write_text(text)
    warnings, site = build(tmp_path)
    assert not warnings
    text = (site / "llms.txt").read_text()
    assert text == (
        "# Weir\n\n> Streams for everybody.\n"
        "\n## Tutorials\n\n"
        "- [The first step](_sources/first.md): Run weir.\n"
        "- [Second steps](_sources/guides/index.md): What to do\n"
        "- [Inner](_sources/guides/inner.md): How inner things work.\n"
        "\n## Reference\n\n"
        "- [Reference](_sources/reference.md): What weir.open() does.\n"
        "- [Names](names.html): All of them.\n"
    )
    assert all((site / link).exists() for link in re.findall(r"\]\((.*?)\)", text))


def test_a_page_without_a_sentence_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.md").write_text("# Weir\n\nStreams.\n\n```{toctree}\n:caption: All\n\nempty\n```\n")
    (tmp_path / "empty.md").write_text("# Empty\n")
    warnings, _ = build(tmp_path)
    assert "empty" in warnings
    assert "no first paragraph" in warnings
