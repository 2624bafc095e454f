"""What a record might contain to run code where an error that quotes it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.errors import StreamsError
from penstock.host.spark.protocol.failures import encode_failure


def failure_that_makes(proof: Path) -> bytes:
    """Return an encoded failure that makes the file `proof` when it is decoded."""

    class CauseError(Exception):
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (proof,)

    error = StreamsError("harmless")
    error.__cause__ = CauseError()
    return encode_failure(error, "")
