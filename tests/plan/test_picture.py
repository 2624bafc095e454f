"""Pictures of topologies: what is in them, and that nothing lies on top of anything else."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Materialized, Processor, Record, StreamsBuilder, Topology
from penstock.plan.picture import Figure
from penstock.serdes import Serdes

SVG = "{http://www.w3.org/2000/svg}"


class Idle(Processor):
    def process(self, record: Record) -> None:
        pass


def word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda key, word: word).count(Materialized.as_("counts")).to_stream().to("counts-out")
    return builder.build()


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right, bottom of each box of an SVG, without the frames of groups."""
    rectangles = [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("rx") != "6"]
    places = [[float(r.get(name, "")) for name in ("x", "y", "width", "height")] for r in rectangles]
    return [(x, y, x + width, y + height) for x, y, width, height in places]


def texts(svg: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_mermaid_shows_sub_topologies_stores_and_the_topics_between_them() -> None:
    flowchart = word_count().describe().to_mermaid()
    ids = dict(re.findall(r'(n\d+)\W+"([^"]+)"', flowchart))
    edges = {(ids[a], line, ids[b]) for a, line, b in re.findall(r"(n\d+) (\S+) (n\d+)", flowchart)}
    assert flowchart.startswith('flowchart TD\n  subgraph g0["Sub-topology: 0"]\n')
    assert ("lines", "-->", "KSTREAM-SOURCE-0000000000") in edges
    assert ("counts-repartition-sink", "-->", "counts-repartition") in edges
    assert ("counts-repartition", "-->", "counts-repartition-source") in edges
    assert ("KSTREAM-AGGREGATE-0000000003", "-.-", "counts") in edges


def test_a_text_cannot_break_out_of_its_box() -> None:
    topology = Topology().add_source('a "<b>" #1', "in")
    assert '[/"a #quot;#lt;b#gt;#quot; #35;1"\\]' in topology.describe().to_mermaid()
    assert 'a "<b>" #1' in texts(topology.describe().to_svg())


def test_svg_shows_every_name() -> None:
    description = word_count().describe()
    names = {node.name for subtopology in description.subtopologies for node in subtopology.nodes}
    assert names | {"lines", "counts", "counts-out", "counts-repartition", "Sub-topology: 1"} <= set(
        texts(description.to_svg())
    )


def test_a_topology_without_nodes_has_a_picture() -> None:
    assert boxes(Topology().describe().to_svg()) == []
    assert Topology().describe().to_mermaid() == "flowchart TD\n"


@pytest.mark.parametrize("write_back", [False, True])
@given(data=st.data())
def test_boxes_never_overlap(write_back: bool, data: st.DataObject) -> None:
    topology = Topology()
    nodes: list[str] = []
    for number in range(data.draw(st.integers(1, 12))):
        name = f"node-{number}"
        parents = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=3)) if nodes else []
        if not parents:
            topology.add_source(name, f"topic-{number}", key_serde=Serdes.string())
        else:
            topology.add_processor(name, Idle, *parents)
        nodes.append(name)
    for number, parent in enumerate(data.draw(st.lists(st.sampled_from(nodes), max_size=4))):
        topology.add_sink(f"sink-{number}", f"topic-{number}" if write_back else f"out-{number % 2}", parent)
    placed = boxes(topology.describe().to_svg())
    for number, (left, top, right, bottom) in enumerate(placed):
        for other in placed[number + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_figures_of_nodes_take_the_place_of_their_kinds() -> None:
    plain = word_count().describe().to_svg()
    svg = word_count().describe().to_svg({"KSTREAM-SINK-0000000008": Figure("7 <b>", 0.5)})
    assert "7 <b>" in texts(svg)
    rectangles = list(ElementTree.fromstring(svg).iter(f"{SVG}rect"))
    assert [each.get("fill-opacity") for each in rectangles if each.get("fill-opacity")] == ["0.30"]
    assert len({each.get("fill") for each in rectangles}) == 3  # frames, nodes, and the figure
    assert len({each.get("fill") for each in ElementTree.fromstring(plain).iter(f"{SVG}rect")}) > 3


def test_sub_topologies_stand_side_by_side_below_what_they_read() -> None:
    svg = word_count().describe().to_svg()
    places = dict(zip([text for text in texts(svg) if not text.startswith("Sub-topology")], boxes(svg), strict=True))
    _, top, _, _ = places["KSTREAM-SOURCE-0000000000"]
    assert places["counts-repartition-source"][1] == top
    assert places["lines"][3] < top
    assert places["counts-repartition"][1] == places["lines"][1]
    assert max(bottom for *_, bottom in places.values()) < 450  # five nodes and a topic, one below the other


def points(path: str) -> list[tuple[float, float]]:
    """Return the corners of a path of straight lines."""
    x = y = 0.0
    found = []
    for command, numbers in re.findall(r"([MVH])([\d. ]+)", path):
        *across, last = map(float, numbers.split())
        x, y = (x, last) if command == "V" else (last, y) if command == "H" else (across[0], last)
        found.append((x, y))
    return found


def test_lines_between_sub_topologies_cross_neither_titles_nor_nodes() -> None:
    figures = {0: Figure("54.3/s", 0.5), 1: Figure("325.5/s", 1.0)}
    svg = word_count().describe().to_svg({"lines": Figure("1", 1.0)}, part_figures=figures)
    drawn = ElementTree.fromstring(svg)
    titles = [
        (float(each.get("x", "")), float(each.get("y", "")) - 10, len(str(each.text)) * 6.6)
        for each in drawn.iter(f"{SVG}text")
        if str(each.text).startswith("Sub-topology")
    ]
    blockers = [*((x, y, x + width, y + 12) for x, y, width in titles), *boxes(svg)]
    paths = [path.get("d", "") for path in drawn.iter(f"{SVG}path") if path.get("marker-end")]
    lines = [points(path) for path in paths if "C" not in path]
    assert len(titles) == 2
    assert len(lines) == 3
    for line in lines:
        for (x, y), (other_x, other_y) in pairwise(line):
            for left, top, right, bottom in blockers:
                apart = max(x, other_x) <= left or min(x, other_x) >= right
                assert apart or max(y, other_y) <= top or min(y, other_y) >= bottom
