"""Kafka Streams in Java: the word count of its documentation, compiled here against the jars that Maven brings.

The program runs until it is ended. What it has done is seen from outside, by the offsets that it commits: it is done
when the input and the repartition topic are.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.measuring import JVM_WARM_SECONDS, Measurement, watch
from benchmarks.rivals.java import compile_java
from benchmarks.topics import PARTITIONS, client_config, delete_topics_of
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.record import TopicPartition
from tests.support.kafka import KAFKA_VERSION, kafka_class_path

APPLICATION: Final = "benchmark-java"
_SOURCE: Final = Path(__file__).with_name("WordCountBenchmark.java")
_REPARTITION: Final = f"{APPLICATION}-counts-store-repartition"
_MARKERS: Final = 1000  # offsets that the markers of transactions may take at the end of a topic


def measure_kafka_streams(
    bootstrap: str, input_topic: str, output_topic: str, text: str, lines: int, words_per_line: int, guarantee: str
) -> Measurement:
    """Count the lines of the input topic and return the rate between the first warm commit and the last."""
    class_path = f"{compile_java(_SOURCE)}{os.pathsep}{kafka_class_path()}"
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        arguments = [APPLICATION, bootstrap, input_topic, output_topic, directory, guarantee, str(PARTITIONS)]
        with (Path(directory) / "log").open("wb") as log:
            process = subprocess.Popen(
                ["java", "-Xmx2g", "-cp", class_path, "WordCountBenchmark", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        admin = ConfluentAdmin(client_config(bootstrap))
        try:
            counted = _Progress(admin, input_topic, lines, words_per_line)
            window = watch(counted.lines, lines, lambda: [process.pid], JVM_WARM_SECONDS)
        except Exception as error:
            error.add_note((Path(directory) / "log").read_text()[-2000:])
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()  # which ends the program
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            admin.close()
            delete_topics_of(bootstrap, APPLICATION)
    name = f"Kafka Streams {KAFKA_VERSION} in Java"
    return Measurement.of_window("e", name, text, words_per_line, window, f"{guarantee}, RocksDB")


class _Progress:
    """Lines whose words are all counted and committed, by the committed offsets of the application."""

    def __init__(self, admin: ConfluentAdmin, input_topic: str, lines: int, words_per_line: int) -> None:
        self._admin = admin
        self._input = [TopicPartition(input_topic, partition) for partition in range(PARTITIONS)]
        self._words = [TopicPartition(_REPARTITION, partition) for partition in range(PARTITIONS)]
        self._lines = lines
        self._words_per_line = words_per_line

    def lines(self) -> int:
        """Return the number of lines that are counted."""
        committed = self._admin.committed_offsets(APPLICATION, self._input + self._words)
        read = sum(offset.offset for tp, offset in committed.items() if tp in self._input)
        counted = sum(offset.offset for tp, offset in committed.items() if tp in self._words)
        if read >= self._lines and counted >= self._lines * self._words_per_line - _MARKERS:
            ends = self._admin.end_offsets(self._words, read_committed=True)
            if counted >= sum(ends.values()) - 4 * PARTITIONS:
                return self._lines
        return min(counted // self._words_per_line, self._lines - 1)
