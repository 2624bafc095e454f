"""Topics that an application reads with other times than the record timestamps, which brokers know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.processor.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)

_OF_RECORDS = (
    None,
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)
"""Extractors that use the timestamp of a record if it is valid."""


def topics_with_own_time(topology: BuiltTopology, config: Mapping[str, Any]) -> frozenset[str]:
    """Return the source topics with another kind of timestamp extractor; patterns are resolved."""
    return frozenset(
        topic
        for spec in topology.subtopologies
        for node in spec.nodes
        if isinstance(node, SourceSpec) and not node.is_internal
        for topic in node.topics
        if (node.timestamp_extractor or config["default.timestamp.extractor"]) not in _OF_RECORDS
    )
