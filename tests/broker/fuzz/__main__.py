"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.broker.fuzz.attack import MOST_BYTES, attack


def main() -> int:
    """Run it; return 1 where a fault was found."""
    parser = argparse.ArgumentParser(description="Fuzz the embedded broker beside a healthy client.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="fuzzed-broker-"))
    print(f"data of the broker: {directory}", flush=True)
    verdict = attack(directory, arguments.minutes * 60, arguments.seed)
    print(
        f"seed {arguments.seed}: {verdict.frames} requests, {verdict.answered} answers, "
        f"the broker's memory at most {verdict.most_bytes >> 20} MiB; "
        f"healthy client: {verdict.rounds} rounds, {verdict.acknowledged} records, all right"
    )
    for fault in verdict.faults:
        print(fault)
    return 1 if verdict.faults or verdict.most_bytes > MOST_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
