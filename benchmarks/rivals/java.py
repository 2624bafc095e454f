"""Programs in Java, compiled here against the jars that Maven brings."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.support.kafka import cache_directory, kafka_class_path


def compile_java(source: Path) -> Path:
    """Return the directory of a compiled program; compiles it when its source is new.

    Raises:
        KafkaUnavailableError: there is no Java, or no Kafka to compile against.
    """
    class_path = kafka_class_path()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    classes = cache_directory() / f"benchmark-{digest}"
    if not (classes / f"{source.stem}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-cp", class_path, "-d", str(classes), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return classes
