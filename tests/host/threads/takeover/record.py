"""Records again what the application in Java leaves on a real Kafka: python -m tests.host.threads.takeover.record"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.host.threads.takeover.running import RECORDED, JavaTwin, record
from tests.support.kafka import RealKafka


def main() -> None:
    """Start Kafka and Java, and write the file."""
    with RealKafka() as kafka, JavaTwin() as java, tempfile.TemporaryDirectory() as directory:
        record(kafka.bootstrap_servers, java, Path(directory), RECORDED)


if __name__ == "__main__":
    main()
