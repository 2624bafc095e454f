"""Penstock on Spark: the word count from topic to topic, and the latency of epochs with little data.

Everything is a user's default: KafkaStreams, its own session on all cores, state on disk, the guarantee that
the broker allows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.measuring import JVM_WARM_SECONDS, Measurement, watch
from benchmarks.program import SERDES, levels, word_count
from benchmarks.topics import client_config, delete_topics_of
from penstock import KafkaStreams
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentConsumer
from penstock.client.confluent.producer import ConfluentProducer
from penstock.plan.topology import Topology
from penstock.record import TopicPartition

APPLICATION: Final = "benchmark-penstock"

_WARM_UP_EPOCHS: Final = 8
_WAIT_SECONDS: Final = 60.0
_CLOSE_MS: Final = 60_000
_LOOK_AGAIN_SECONDS: Final = 0.25
"""Time after a commit until the query looks for new records again."""


@contextmanager
def application(
    topology: Topology, bootstrap: str, application_id: str = APPLICATION, **config: Any
) -> Iterator[KafkaStreams]:
    """An application with its own state, not started yet; at the end it is closed and its topics are deleted."""
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        settings = {"application.id": application_id, "bootstrap.servers": bootstrap, "state.dir": directory, **SERDES}
        streams = KafkaStreams(topology, {**settings, **config})
        try:
            yield streams
        finally:
            streams.close(_CLOSE_MS)
            delete_topics_of(bootstrap, application_id)


def records_read(streams: KafkaStreams) -> int:
    """Return how many records of its topics an application has read and committed."""
    return int(streams.statistics().get("records_in", 0))


def wait_for_records(streams: KafkaStreams, records: int) -> None:
    """Wait until so many records are committed; raises TimeoutError after a minute."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while records_read(streams) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{records} records are not committed within {_WAIT_SECONDS:.0f} s")
        time.sleep(0.02)


def spread(times: list[float]) -> dict[str, float]:
    """Return the median of `times` and the value that nine in ten of them stay below."""
    return {"median": statistics.median(times), "p90": statistics.quantiles(times, n=10)[-1]}


def measure_on_spark(
    bootstrap: str, input_topic: str, output_topic: str, text: str, lines: int, words_per_line: int, guarantee: str
) -> Measurement:
    """Count the lines of the input topic and return the rate from the first warm epoch to the last."""
    topology = word_count(input_topic, output_topic)
    with application(topology, bootstrap, **{"processing.guarantee": guarantee}) as streams:
        streams.start()
        window = watch(lambda: records_read(streams), lines, warm_seconds=JVM_WARM_SECONDS)
        epochs = streams.statistics()["epoch"]
    remark = f"{guarantee}, {epochs} epochs"
    return Measurement.of_window("b", "Penstock on Spark", text, words_per_line, window, remark)


def measure_latency(number: int, bootstrap: str, input_topic: str, output_topic: str, epochs: int) -> dict[str, Any]:
    """Return the times (ms) of epochs of two records through `number` sub-topologies: median and p90.

    epoch: from planning to the commit of the manifest, as the host tells. output: from before a record is written to
    when its committed output is read, with all waiting for the next look at the topic.
    """
    config = client_config(bootstrap)
    epoch_ms: list[float] = []
    output_ms: list[float] = []
    with application(levels(number, input_topic, output_topic), bootstrap) as streams:
        admin, producer, consumer = ConfluentAdmin(config), ConfluentProducer(config), ConfluentConsumer(config)
        try:
            consumer.assign(admin.end_offsets([TopicPartition(output_topic, p) for p in range(2)]))
            streams.start()
            for turn in range(_WARM_UP_EPOCHS + epochs):
                while consumer.poll(100, 50):
                    pass  # what an earlier epoch wrote to the other partition
                begin = time.perf_counter()
                for partition in range(2):
                    producer.send(input_topic, None, b"a b", partition)
                producer.flush()
                _wait_for_output(consumer)
                end = time.perf_counter()
                wait_for_records(streams, 2 * (turn + 1))
                time.sleep(_LOOK_AGAIN_SECONDS)
                if turn >= _WARM_UP_EPOCHS:
                    output_ms.append((end - begin) * 1000)
                    epoch_ms.append(float(streams.statistics()["epoch_ms"]))
        finally:
            for client in (admin, producer, consumer):
                client.close()
    return {"levels": number, "epochs": epochs, "epoch_ms": spread(epoch_ms), "output_ms": spread(output_ms)}


def _wait_for_output(consumer: ConfluentConsumer) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not consumer.poll(100, 1000):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no output within {_WAIT_SECONDS:.0f} s")
