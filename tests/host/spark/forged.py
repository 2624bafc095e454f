"""What a record might contain to run code where an error that quotes it is read."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import orjson

from penstock.errors import StreamsError
from penstock.host.packing.carried_errors import CarriedError
from penstock.host.spark.protocol.failures import encode_failure


def failure_that_makes(proof: Path) -> bytes:
    """Return an encoded failure that makes the file `proof` when it is decoded."""

    class Cause:
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (proof,)

    cause = CarriedError(pickle.dumps(Cause()), "CauseError: ", [])
    fields = orjson.loads(encode_failure(StreamsError("harmless"), ""))
    return orjson.dumps({**fields, "causes": b64encode(pickle.dumps([cause])).decode()})
