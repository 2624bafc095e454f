"""Programs that write records of their input further than once: dropped ones to a topic of their own, or each to all
tasks. They run to the end of their input.

Run as `copies.py <configuration as JSON>`; beside keys of StreamsConfig that has `program` and `topics`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from penstock import KafkaStreams, Serdes, Topology
from tests.host.test_broadcast import naming
from tests.host.test_late_records import counting

PROGRAMS: dict[str, Callable[[Sequence[str]], Topology]] = {
    "broadcast": lambda topics: naming(*topics),
    "late": lambda topics: counting(topics[0].removesuffix("-in")),
}


def main() -> None:
    config = json.loads(sys.argv[1])
    topology = PROGRAMS[config.pop("program")](config.pop("topics"))
    texts = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    KafkaStreams(topology, {**texts, **config}).run_to_end()


if __name__ == "__main__":
    main()
