"""What a notebook shows of an edit: the application, each change, and the topology that runs now."""

from __future__ import annotations

import pytest

from penstock import Topology
from penstock.application.topology_edit import TopologyEdit
from penstock.notebook import HTML, TEXT

DESCRIPTION = Topology().add_source("source", "in").add_sink("sink", "out", "source").describe()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (("store <a> keeps its state", "store b is new"), "store <a> keeps its state\nstore b is new"),
        ((), "Stores, topics and nodes are the same; the functions are the new ones."),
    ],
)
def test_the_text_has_a_line_for_each_change(lines: tuple[str, ...], shown: str) -> None:
    edit = TopologyEdit("app", lines, DESCRIPTION)
    heading, _, rest = str(edit).partition("\n")
    assert heading.startswith("KafkaStreams app continues with the changed topology")
    assert rest == shown
    assert edit._repr_mimebundle_([TEXT]) == {TEXT: str(edit)}


def test_the_page_has_the_escaped_changes_and_the_drawing() -> None:
    edit = TopologyEdit("app", ("store <a> keeps its state",), DESCRIPTION)
    page = edit._repr_mimebundle_([HTML])[HTML]
    assert "store &lt;a&gt; keeps its state" in page
    assert page.index("keeps its state") < page.index("<svg")
    assert edit._repr_mimebundle_()["image/svg+xml"] in page
