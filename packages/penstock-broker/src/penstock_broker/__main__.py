"""`penstock-broker`, or `python -m penstock_broker`: the command line of the broker."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError
from penstock_broker.server import Input, run

_SETTINGS: Final = {
    "segment_bytes": "size at which a segment of a log is closed",
    "log_retention_ms": "age (ms) at which records are deleted, unless the topic sets it; -1 for never",
    "log_retention_check_interval_ms": "how often (ms) records are checked for that",
    "log_initial_task_delay_ms": "how long (ms) after the start that begins, at the latest",
    "log_flush_interval_messages": "records after which a log is forced to disk, unless the topic sets it; 1 for each",
    "log_cleaner_backoff_ms": "how often (ms) logs are checked for what a compaction removes",
    "group_initial_rebalance_delay_ms": "how long (ms) the first rebalance of a group waits for more members",
    "group_streams_heartbeat_interval_ms": "how often (ms) members of groups of Kafka Streams send heartbeats",
    "group_streams_session_timeout_ms": "time (ms) without a heartbeat after which such a member is removed",
    "group_streams_initial_rebalance_delay_ms": "how long (ms) their first assignment waits for more members",
    "quota_window_num": "over how many seconds the use of a quota is averaged",
}
"""`BrokerConfig` numbers that the command line may set, with their help texts."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock-broker",
        description="An embedded Kafka broker for this machine: one node, a durable log, loopback addresses only.",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="directory of the log; created if missing")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=9092, help="TCP port; 0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--schema-registry-port", type=int, help="TCP port of a schema registry on the same address (default: none)"
    )
    parser.add_argument(
        "--num-partitions", type=int, default=1, help="partitions of a topic that is created without a number"
    )
    parser.add_argument(
        "--no-auto-create-topics", action="store_true", help="never create a missing topic that a client asks for"
    )
    defaults = {field.name: field.default for field in dataclasses.fields(BrokerConfig)}
    for name, purpose in _SETTINGS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=defaults[name], help=f"{purpose} (default: %(default)s)")
    parser.add_argument(
        "--stop-at-eof",
        dest="input",
        action="store_const",
        const=Input.OF_PARENT,
        default=Input.UNUSED,
        help="exit when standard input is closed",
    )
    parser.add_argument(
        "--commands",
        dest="input",
        action="store_const",
        const=Input.COMMANDS,
        help="take commands of tests from standard input too",
    )
    parser.add_argument("--temporary", action="store_true", help="remove the data directory at the end")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker until it is interrupted.

    Args:
        arguments: the command line; None for that of the process.

    Returns:
        The exit code: 0, or 1 if the broker cannot start.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        config = BrokerConfig(
            data_dir=options.data_dir,
            host=options.host,
            port=options.port,
            schema_registry_port=options.schema_registry_port,
            num_partitions=options.num_partitions,
            auto_create_topics=not options.no_auto_create_topics,
            **{name: getattr(options, name) for name in _SETTINGS},
        )
        run(config, input=options.input, is_temporary=options.temporary)
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
