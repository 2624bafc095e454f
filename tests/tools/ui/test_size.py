"""How much the pages draw and make: of large topologies, and while a page is open whose figures take long."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from penstock import StreamsBuilder, Topology
from penstock.plan import picture
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.topologies import Answer
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import page


def chains(number: int, length: int = 18) -> Topology:
    """Return a topology of a number of sub-topologies with `length` + 2 nodes each."""
    builder = StreamsBuilder()
    for chain in range(number):
        stream = builder.stream(f"in-{chain}")
        for _ in range(length):
            stream = stream.map_values(str)
        stream.to(f"out-{chain}")
    return builder.build()


def nodes_of(shown: Shown) -> list[str]:
    (topology,) = shown.json("/topology.json")["topologies"]
    return [node["name"] for part in topology["subtopologies"] for node in part["nodes"]]


@pytest.mark.slow
def test_a_topology_of_a_thousand_nodes_is_drawn_in_proportion(show: Callable[..., Shown]) -> None:
    small, large = show(chains(5)), show(chains(50))
    sizes = []
    for shown, number in ((small, 100), (large, 1_000)):
        nodes = nodes_of(shown)
        assert len(nodes) == len(set(nodes)) == number
        picture = shown.client.get("/topology.svg").text
        assert sorted(re.findall(r">(KSTREAM-[A-Z]+-\d+)</text>", picture)) == sorted(nodes)
        found = page(shown, "/topology")
        drawn = {str(each["href"]).partition("node=")[2] for each in found.with_tag("a")}
        assert set(nodes) <= drawn
        sizes.append((len(picture), len(shown.client.get("/topology").content), len(found.elements)))
        folded = shown.client.get(f"/topology.svg?folded={','.join(map(str, range(number)))}").text
        assert folded.count("<rect") < number / 2
    for of_hundred, of_thousand in zip(*sizes, strict=True):
        assert of_thousand < 11 * of_hundred
    assert sizes[1][1] < 2_000_000


@pytest.mark.parametrize(("takes_ms", "every_ms"), [(0, 2_000), (10, 2_010), (300, 60_300), (5_000, 1_005_000)])
def test_a_page_that_takes_long_is_made_less_often(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, takes_ms: int, every_ms: int
) -> None:
    began: list[int] = []

    def overview(answers: Answers) -> Answer:
        began.append(shown.clock.milliseconds())
        shown.clock.advance(takes_ms)
        if len(began) == 4:
            shown.observer.close()  # which ends the stream
        return made

    async def sleep(seconds: float) -> None:
        shown.clock.advance(round(1_000 * seconds))

    made = Answers(shown.observer, shown.config).overview()
    monkeypatch.setattr(Answers, "overview", overview)
    monkeypatch.setattr("penstock.tools.ui.routes.elapsed_milliseconds", shown.clock.milliseconds)
    monkeypatch.setattr("penstock.tools.ui.routes.asyncio.sleep", sleep)
    shown.client.get("/events")
    assert [after - before for before, after in pairwise(began)] == [every_ms] * 3


def test_a_picture_is_drawn_again_only_if_it_has_changed(
    show: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    def svg(*arguments: Any) -> str:
        drawn.append(arguments)
        return draw(*arguments)

    drawn: list[Any] = []
    draw = picture.svg
    monkeypatch.setattr(picture, "svg", svg)
    shown = show(chains(2, length=3))
    pages = [page(shown, f"/topology{how}") for how in ("", "", "?folded=0", "?folded=0", "?measure=errors")]
    assert len(drawn) == 3
    assert pages[0].elements == pages[1].elements != pages[2].elements == pages[3].elements
