"""A configuration and a run that the tests of the papers' shapes share."""

from __future__ import annotations

from penstock import Topology
from penstock.serdes import Serdes
from penstock.testing import TopologyTestDriver

STRING, LONG = Serdes.string(), Serdes.long()
CONFIG = {"default.key.serde": STRING, "default.value.serde": STRING}


def output(topology: Topology, *records: tuple[str, str, int]) -> list[tuple[str, str, int | None]]:
    """Return key, value and timestamp of the records of topic out for those of topic in."""
    with TopologyTestDriver(topology, CONFIG) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        for record in records:
            topic.pipe_input(*record)
        read = driver.create_output_topic("out", STRING, STRING).read_records_to_list()
        return [(record.key, record.value, record.timestamp) for record in read]
