"""One instance of the program that chaos strikes, on the threads host.

Run as `python -m tests.chaos.instance_program <configuration as JSON>`; beside keys of StreamsConfig that has `prefix`
(of the topics) and `letters` (of the topology), and `orders`, a directory: it runs until a file `stop` appears there,
and writes the entries of its stores to a file `stores` once there is a file `show`. At SIGUSR1 it prints the stacks of
its threads.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import time
from pathlib import Path

from penstock.config import StreamsConfig
from penstock.host.threads.host import ThreadsHost
from penstock.plan.topology import built_topology
from penstock.state.query.queries import TimestampedRangeQuery
from penstock.state.query.request import StateQueryRequest
from tests.chaos import program
from tests.host.threads.support import Listening

_LOOK_SECONDS = 0.05


def main() -> int:
    """Run until told to stop; returns 1 if the instance ends by itself."""
    faulthandler.register(signal.SIGUSR1)
    config = json.loads(sys.argv[1])
    orders = Path(config.pop("orders"))
    topology = program.topology(config.pop("prefix"), 1, config.pop("letters"))
    host = ThreadsHost(built_topology(topology, config["application.id"]), StreamsConfig(config))
    listening = Listening()
    host.start(listening)
    while not (orders / "stop").exists():
        if listening.ended.is_set():
            host.close(60_000)
            print(f"ERROR ended by {listening.error!r}", file=sys.stderr, flush=True)
            return 1
        if (orders / "show").exists() and not (orders / "stores").exists():
            show(host, orders)
        time.sleep(_LOOK_SECONDS)
    return 0 if host.close(240_000) else 2


def show(host: ThreadsHost, orders: Path) -> None:
    """Write the entries of the stores, none of a store of which other instances have all tasks, unless tasks are being
    set up: store, key, value and timestamp of each."""
    entries = []
    for name in (program.LETTERS_STORE, program.ORDERS_STORE):
        request = StateQueryRequest.in_store(name).with_query(TimestampedRangeQuery.with_no_bounds()).require_active()
        for answer in host.queries().query(request).partition_results.values():
            if answer.is_failure():
                return
            entries += [(name, key, found.value, found.timestamp) for key, found in answer.result]
    with (orders / "being written").open("w") as file:
        json.dump(entries, file)
    (orders / "being written").rename(orders / "stores")


if __name__ == "__main__":
    sys.exit(main())
