"""Runs one contestant in its own process, so that its CPU time and its leftovers are its own.

`python -m benchmarks.contestant '<json>'` prints the result as JSON on the last line of standard output. The JSON has
`run`, a key of RUNS, and the arguments of that function.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks.families_on_spark import measure_family, measure_idle_epoch
from benchmarks.measuring import Measurement
from benchmarks.nexmark.runs import measure_java, measure_penstock, measure_rival
from benchmarks.on_spark import measure_latency, measure_on_spark
from benchmarks.rivals.kafka_streams import measure_kafka_streams
from benchmarks.rivals.plain_spark import measure_native, measure_transform_with_state
from benchmarks.task_alone import measure_task_alone

RUNS: Final[dict[str, Callable[..., Measurement | dict[str, Any]]]] = {
    "task": measure_task_alone,
    "spark": measure_on_spark,
    "transform": measure_transform_with_state,
    "native": measure_native,
    "java": measure_kafka_streams,
    "latency": measure_latency,
    "family": measure_family,
    "idle": measure_idle_epoch,
    "nexmark": measure_penstock,
    "nexmark-java": measure_java,
    "nexmark-rival": measure_rival,
}


def main() -> None:
    """Run what the first argument asks for."""
    asked = json.loads(sys.argv[1])
    result = RUNS[asked.pop("run")](**asked)
    print(json.dumps(result.to_json() if isinstance(result, Measurement) else result), flush=True)


if __name__ == "__main__":
    main()
