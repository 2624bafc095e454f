"""Penstock on Spark: the word count from topic to topic, and the latency of epochs with little data.

Everything is as a user has it by default: KafkaStreams, an own session on all cores, state on disk, the guarantee that
the broker allows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any, Final

from benchmarks.measuring import Measurement, watch
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
_OUTPUT_WAIT_SECONDS: Final = 60.0
_CLOSE_MS: Final = 60_000


def _application(topology: Topology, bootstrap: str, directory: str, **config: Any) -> KafkaStreams:
    settings = {"application.id": APPLICATION, "bootstrap.servers": bootstrap, "state.dir": directory, **SERDES}
    return KafkaStreams(topology, {**settings, **config})


def measure_on_spark(
    bootstrap: str, input_topic: str, output_topic: str, text: str, lines: int, words_per_line: int, guarantee: str
) -> Measurement:
    """Count the lines of the input topic and return the rate from the first warm epoch to the last."""
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        topology = word_count(input_topic, output_topic)
        streams = _application(topology, bootstrap, directory, **{"processing.guarantee": guarantee})
        try:
            streams.start()
            window = watch(lambda: int(streams.statistics().get("records_in", 0)), lines)
            epochs = streams.statistics()["epoch"]
        finally:
            streams.close(_CLOSE_MS)
            delete_topics_of(bootstrap, APPLICATION)
    return Measurement(
        "b",
        "Penstock on Spark",
        text,
        window.lines,
        words_per_line,
        window.seconds,
        window.cpu_seconds,
        f"{guarantee}, {epochs} epochs",
    )


def measure_latency(number: int, bootstrap: str, input_topic: str, output_topic: str, epochs: int) -> dict[str, Any]:
    """Return the times (ms) of epochs of two records through `number` sub-topologies: median and p90.

    epoch: from planning to the commit of the manifest, as the host tells. output: from before a record is written to
    when its committed output is read, with all waiting for the next look at the topic.
    """
    config = client_config(bootstrap)
    epoch_ms: list[float] = []
    output_ms: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        streams = _application(levels(number, input_topic, output_topic), bootstrap, directory)
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
                _wait_until_idle(streams, 2 * (turn + 1))
                if turn >= _WARM_UP_EPOCHS:
                    output_ms.append((end - begin) * 1000)
                    epoch_ms.append(float(streams.statistics()["epoch_ms"]))
        finally:
            streams.close(_CLOSE_MS)
            for client in (admin, producer, consumer):
                client.close()
            delete_topics_of(bootstrap, APPLICATION)
    return {"levels": number, "epochs": epochs, "epoch_ms": _spread(epoch_ms), "output_ms": _spread(output_ms)}


def _wait_for_output(consumer: ConfluentConsumer) -> None:
    deadline = time.monotonic() + _OUTPUT_WAIT_SECONDS
    while not consumer.poll(100, 1000):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no output within {_OUTPUT_WAIT_SECONDS:.0f} s")


def _wait_until_idle(streams: KafkaStreams, records: int) -> None:
    """Wait until all records are committed and the query looks for new ones again."""
    deadline = time.monotonic() + _OUTPUT_WAIT_SECONDS
    while int(streams.statistics().get("records_in", 0)) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{records} records are not committed within {_OUTPUT_WAIT_SECONDS:.0f} s")
        time.sleep(0.02)
    time.sleep(0.25)


def _spread(times: list[float]) -> dict[str, float]:
    return {"median": statistics.median(times), "p90": statistics.quantiles(times, n=10)[-1]}
