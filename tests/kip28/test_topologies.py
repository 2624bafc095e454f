"""Topology classes of the papers, beyond the papers' own jobs (tests/examples/test_kip28.py)."""

from __future__ import annotations

from penstock.kip28 import KafkaProcessor, KStreamTopology, ProcessorContext, PTopology
from tests.kip28.support import output


class Counting(KafkaProcessor):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen = 0

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, key: str, value: str) -> None:
        self.seen += 1
        self.forward(key, f"{value}{self.seen}")
        if self.name == "last":
            self.context.forward(key, value)


class Chain(PTopology):
    def build(self) -> None:
        source, first, last = self.add_source(None, None, "in"), Counting("first"), Counting("last")
        self.add_processor(first, source)
        self.add_processor(last, first, source)


def test_a_topology_class_chains_its_processors() -> None:
    described = str(Chain.topology().describe())
    assert "Processor: last (stores: [])\n      --> none\n      <-- first, source-0" in described
    assert output(Chain.topology(), ("k", "v", 1)) == []


class OwnInit(Chain):
    """Does not call the __init__ of its base."""

    def __init__(self) -> None:
        self.own = True


class Streams(KStreamTopology):
    def __init__(self) -> None:
        self.target = "out"

    def build(self) -> None:
        self.from_(None, None, "in").send_to(self.target)


def test_topology_classes_need_not_initialise_their_base() -> None:
    assert str(OwnInit.topology().describe()) == str(Chain.topology().describe())
    assert output(Streams.topology(), ("k", "v", 1)) == [("k", "v", 1)]


def test_each_task_has_its_own_processors() -> None:
    topology = Chain.topology()
    for _ in range(2):  # what a first run counted is not there in the second
        assert output(
            topology.add_sink("sink", "out", "first") if "sink" not in str(topology.describe()) else topology,
            ("k", "v", 1),
        ) == [("k", "v1", 1)]
