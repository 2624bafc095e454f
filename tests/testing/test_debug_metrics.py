"""The metrics that `metrics.recording.level` of DEBUG adds: what they count, and that they change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Named, Processor, Produced, Record, Serdes, StreamsBuilder, Topology
from penstock.host.inline import ProducedRecord
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
CONFIG = {"default.key.serde": STRING, "default.value.serde": STRING, "client.id": "me"}
GROUPS = ["stream-processor-node-metrics", "stream-state-metrics", "stream-record-cache-metrics"]
LINES = [("k", "one", 1_000), ("k", "two", 400), ("l", "three", 2_000), (None, "four", 3_000), ("k", "six", 4_000)]


class Run:
    """A topology that was given LINES at a level."""

    def __init__(self, topology: Topology, level: str, **config: Any) -> None:
        given = {**CONFIG, "metrics.recording.level": level, **config}
        with TopologyTestDriver(topology, given, 0) as driver:
            lines = driver.create_input_topic("in", STRING, STRING)
            for key, value, timestamp in LINES:
                lines.pipe_input(key, value, timestamp)
            self.output: list[ProducedRecord] = driver.read_all_bytes()
            self.found = {
                (name.name, *(tag for tag in name.tag_items if tag[0] not in ("client-id", "task-id"))): metric
                for name, metric in driver.metrics().items()
                if name.group in GROUPS
            }

    def value(self, name: str, tag: str, id: str) -> Any:
        return self.found[name, (tag, id)].metric_value

    def values(self, name: str) -> dict[str, Any]:
        """Return the values of a metric by what its last tag says."""
        return {key[-1][1]: metric.metric_value for key, metric in self.found.items() if key[0] == name}


class Twice(Processor):
    """Forwards each record twice to its first child, and no long ones."""

    def process(self, record: Record[Any, Any]) -> None:
        if len(record.value) < 5:
            self.context.forward(record)
            self.context.forward(record)


def branches() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda key, value: value != "six", named=Named.as_("some"))
    upper = stream.map_values(lambda value: value.upper(), named=Named.as_("upper"))
    upper.process(Twice, named=Named.as_("twice")).to("twice", produced=Produced.as_("twice-out"))
    upper.to("upper", produced=Produced.as_("upper-out"))
    builder.stream("other").to("unheard", produced=Produced.as_("unheard-out"))
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named=Named.as_("counted"))
    return builder.build()


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (
            branches(),
            {"KSTREAM-SOURCE-0000000000": 5, "some": 5, "upper": 4, "twice": 4, "twice-out": 6, "upper-out": 4},
        ),
        (counted(), {"KSTREAM-SOURCE-0000000000": 5, "counted": 5}),
    ],
    ids=["branches", "counted"],
)
def test_each_node_counts_what_it_is_handed(topology: Topology, expected: dict[str, int], execution: str) -> None:
    run = Run(topology, "DEBUG", **{"penstock.execution": execution})
    assert run.values("process-total") == expected
    assert run.values("process-rate") == {name: pytest.approx(records / 30) for name, records in expected.items()}
    assert {key[1][0] for key in run.found if key[0] == "process-total"} == {"processor-node-id"}


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("topology", [branches(), counted()], ids=["branches", "counted"])
def test_what_is_recorded_changes_nothing(topology: Topology, execution: str) -> None:
    runs = {level: Run(topology, level, **{"penstock.execution": execution}) for level in ("INFO", "DEBUG", "TRACE")}
    assert runs["INFO"].found == {}
    assert runs["DEBUG"].found.keys() == runs["TRACE"].found.keys() != set()
    assert runs["INFO"].output == runs["DEBUG"].output == runs["TRACE"].output != []
