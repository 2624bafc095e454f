"""Measures what the guarantees cost where output is written: one sink partition, with transactions and without.

    python benchmarks/writers.py --bootstrap-servers HOST:PORT [--records 100,100000] [--epochs N]

Needs brokers with transactions; makes two topics there. An epoch is what a sink partition writes for it: its records,
and with exactly_once_v2 its marker. What was found is in README.md.
"""

from __future__ import annotations

import argparse
import time
import uuid

from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.sending import EpochWriter
from penstock.client.confluent.transactions import TransactionalWriter
from penstock.config import StreamsConfig
from penstock.config.kafka_keys import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from penstock.record import PartitionBatch, RecordBatch, TopicPartition


def measure(writer: EpochWriter, topic: str, records: int, epochs: int) -> tuple[float, float]:
    """Return wall time and CPU time (ms) of an epoch of `records`, the mean of `epochs` after a first."""
    rows = [(b"key-%d" % number, b"v" * 60, 1_000 + number, number, ()) for number in range(records)]
    output = [PartitionBatch(topic, 0, RecordBatch.of(rows))]
    owner = f"benchmark-{records}"
    writer.write(1, owner, output)
    wall, cpu = time.perf_counter(), time.process_time()
    for epoch in range(2, 2 + epochs):
        writer.write(epoch, owner, output)
    return 1000 * (time.perf_counter() - wall) / epochs, 1000 * (time.process_time() - cpu) / epochs


def main() -> None:
    """Measure and print a line for each guarantee and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--records", default="100,100000", help="records an epoch, by commas")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    name = f"writers-{uuid.uuid4().hex[:8]}"
    config = StreamsConfig({"application.id": name, "bootstrap.servers": arguments.bootstrap_servers})
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(name, 1, 1), NewTopic(f"{name}-commits", 1, 1)])
    admin.close()
    for records in map(int, arguments.records.split(",")):
        marker = TopicPartition(f"{name}-commits", 0)
        writers: dict[str, EpochWriter] = {
            AT_LEAST_ONCE: AtLeastOnceWriter(config),
            EXACTLY_ONCE_V2: TransactionalWriter(
                config, f"{name}-{records}", f"{name}-{records}", marker, lambda epoch: None
            ),
        }
        for guarantee, writer in writers.items():
            wall, cpu = measure(writer, name, records, arguments.epochs)
            print(f"{records:>8} records an epoch, {guarantee:<16} {wall:8.1f} ms, CPU {cpu:7.1f} ms", flush=True)
            writer.close()


if __name__ == "__main__":
    main()
