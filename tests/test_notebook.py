"""How objects show themselves in a notebook, which asks for their forms by `_repr_mimebundle_`."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from penstock import (
    KafkaStreams,
    Materialized,
    Processor,
    Record,
    Repartitioned,
    StreamsBuilder,
    Topology,
)
from penstock.notebook import HTML, MERMAID, SVG, TEXT

HOSTILE = '"><script>alert(1)</script>\x00'


def forms(shown: Any, **asked: Any) -> dict[str, str]:
    """Return what a notebook is given for `shown`, once it has been checked that HTML and SVG are well-formed."""
    given: dict[str, str] = shown._repr_mimebundle_(**asked)
    for mime in {HTML, SVG} & given.keys():
        ElementTree.fromstring(given[mime].replace("&middot;", ""))
    return given


def word_count() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda key, word: word).count(Materialized.as_("counts")).to_stream().to("counts-out")
    return builder


@pytest.mark.parametrize(
    ("shown", "title"),
    [
        (word_count(), "StreamsBuilder"),
        (word_count().build(), "Topology"),
        (word_count().build().describe(), "Topology"),
        (KafkaStreams(word_count().build(), {"application.id": "app", "bootstrap.servers": "none:1"}), "CREATED"),
    ],
)
def test_what_has_a_topology_shows_its_picture(shown: Any, title: str) -> None:
    description = word_count().build().describe()
    given = forms(shown)
    assert given.keys() == {TEXT, HTML, SVG, MERMAID}
    assert given[TEXT].endswith(str(description).rstrip())
    assert given[SVG] == description.to_svg()
    assert given[SVG] in given[HTML]
    assert title in given[HTML]
    assert given[MERMAID] == description.to_mermaid()


def test_an_application_shows_its_id_its_state_and_its_host() -> None:
    config = {"application.id": "word-count", "bootstrap.servers": "none:1", "penstock.host": "threads"}
    first, _, _ = forms(KafkaStreams(word_count().build(), config))[TEXT].partition("\n")
    assert first == "KafkaStreams word-count (state: CREATED, host: threads)"


def test_a_notebook_gets_only_the_forms_that_it_asks_for() -> None:
    topology = word_count().build()
    assert forms(topology, include=[SVG, "image/png"]).keys() == {SVG}
    assert forms(topology, exclude=[SVG, HTML]).keys() == {TEXT, MERMAID}
    assert forms(topology, include=[SVG, TEXT], exclude=[TEXT]).keys() == {SVG}
    assert forms(topology, include=None, exclude=None).keys() == {TEXT, HTML, SVG, MERMAID}


def test_a_stream_shows_what_leads_to_it_and_nothing_else() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines")
    words = lines.flat_map_values(str.split, named="split")
    words.filter(lambda key, word: bool(word), named="later").to("words")
    lines.peek(print, named="beside")
    before = str(builder.build().describe())
    text = forms(words)[TEXT]
    assert text.startswith("KStream split (keys: default serde, values: default serde)\n")
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [lines])" in text
    assert "Processor: split" in text
    assert "later" not in text
    assert "beside" not in text
    assert str(builder.build().describe()) == before


def test_a_table_shows_what_leads_to_it_across_repartition_topics_and_shared_stores() -> None:
    class Reads(Processor):
        def process(self, record: Record) -> None:
            pass

    builder = StreamsBuilder()
    table = builder.stream("a").repartition(Repartitioned.as_("r")).to_table(materialized=Materialized.as_("store"))
    text = forms(table)[TEXT]
    assert "topics: [a]" in text
    assert "topics: [r-repartition]" in text
    assert "stores: [store]" in text
    reader = builder.stream("b").process(Reads, "store")
    assert "topics: [a]" in forms(reader)[TEXT]


def test_the_second_stream_of_a_topic_shows_itself() -> None:
    builder = StreamsBuilder()
    builder.stream("in").peek(print)
    assert "topics: [in]" in forms(builder.stream("in"))[TEXT]


def test_a_program_that_cannot_be_built_yet_shows_why() -> None:
    builder = StreamsBuilder()
    one = builder.stream("in").filter(lambda key, value: True, named="same")
    builder.stream("other").filter(lambda key, value: True, named="same")
    for shown in (builder, one):
        given = forms(shown)
        assert given.keys() == {TEXT, HTML}
        assert "Processor same is already added." in given[HTML]
    assert "Sub-topology" not in forms(StreamsBuilder())[TEXT]


def test_names_cannot_break_out_of_html_svg_and_mermaid() -> None:
    topology = Topology().add_source(HOSTILE + "\nn0 --> n0", "in")
    given = forms(topology)
    assert "<script>" not in given[HTML] + given[SVG]
    assert "\x00" not in given[HTML] + given[SVG] + given[MERMAID]
    assert "\nn0 -->" not in given[MERMAID]
