"""Names of nodes, stores and repartition topics.

Contains Kafka's prefixes, the counter for generated names, and the check for legal names.

Rules: a generated name takes the next number of the counter when the operator is called, not when the topology is
built. Most operators take a number even if the user names them, so that naming one operator does not rename later ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import TopologyError
from penstock.plan.internal_topics import REPARTITION_SUFFIX
from penstock.topic_names import LEGAL, MAX_LENGTH

INBOX_SUFFIX = "-calls"
"""The end of the names of the inbox and the store of an operator with calls."""

STREAM_SOURCE = "KSTREAM-SOURCE-"
STREAM_SINK = "KSTREAM-SINK-"
STREAM_FILTER = "KSTREAM-FILTER-"
STREAM_MAP = "KSTREAM-MAP-"
STREAM_MAP_VALUES = "KSTREAM-MAPVALUES-"
STREAM_FLAT_MAP = "KSTREAM-FLATMAP-"
STREAM_FLAT_MAP_VALUES = "KSTREAM-FLATMAPVALUES-"
STREAM_KEY_SELECT = "KSTREAM-KEY-SELECT-"
STREAM_PEEK = "KSTREAM-PEEK-"
STREAM_FOREACH = "KSTREAM-FOREACH-"
STREAM_PRINTER = "KSTREAM-PRINTER-"
STREAM_PROCESSOR = "KSTREAM-PROCESSOR-"
STREAM_PROCESS_VALUES = "KSTREAM-PROCESSVALUES-"
STREAM_BRANCH = "KSTREAM-BRANCH-"
STREAM_DEDUPLICATE = "KSTREAM-DEDUPLICATE-"
STREAM_MERGE = "KSTREAM-MERGE-"
STREAM_REPARTITION = "KSTREAM-REPARTITION-"
STREAM_BROADCAST = "KSTREAM-BROADCAST-"
STREAM_AGGREGATE = "KSTREAM-AGGREGATE-"
STREAM_REDUCE = "KSTREAM-REDUCE-"
STREAM_WINDOWED = "KSTREAM-WINDOWED-"
STREAM_JOIN_THIS = "KSTREAM-JOINTHIS-"
STREAM_JOIN_OTHER = "KSTREAM-JOINOTHER-"
STREAM_OUTER_THIS = "KSTREAM-OUTERTHIS-"
STREAM_OUTER_OTHER = "KSTREAM-OUTEROTHER-"
STREAM_OUTER_SHARED = "KSTREAM-OUTERSHARED-"
STREAM_JOIN = "KSTREAM-JOIN-"
STREAM_LEFT_JOIN = "KSTREAM-LEFTJOIN-"
TABLE_MERGE = "KTABLE-MERGE-"
TABLE_JOIN_THIS = "KTABLE-JOINTHIS-"
TABLE_JOIN_OTHER = "KTABLE-JOINOTHER-"
TABLE_SINK = "KTABLE-SINK-"
SUBSCRIPTION_REGISTRATION = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-"
SUBSCRIPTION_RESPONSE = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-"
SUBSCRIPTION_PROCESSOR = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-"
SUBSCRIPTION_RESPONSE_RESOLVER = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
SUBSCRIPTION_STORE = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"
FOREIGN_KEY_JOIN_OUTPUT = "KTABLE-FK-JOIN-OUTPUT-"
TABLE_SOURCE = "KTABLE-SOURCE-"
STREAM_TO_TABLE = "KSTREAM-TOTABLE-"
TABLE_FILTER = "KTABLE-FILTER-"
TABLE_MAP_VALUES = "KTABLE-MAPVALUES-"
TABLE_TRANSFORM_VALUES = "KTABLE-TRANSFORMVALUES-"
TABLE_SELECT = "KTABLE-SELECT-"
TABLE_AGGREGATE = "KTABLE-AGGREGATE-"
TABLE_REDUCE = "KTABLE-REDUCE-"
TABLE_SUPPRESS = "KTABLE-SUPPRESS-"
COGROUP_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
COGROUP_MERGE = "COGROUPKSTREAM-MERGE-"
TABLE_TO_STREAM = "KTABLE-TOSTREAM-"

_STATE_STORE = "STATE-STORE-"
_GENERATED_NAME = re.compile(r"KSTREAM.*-[0-9]{10}")


class InternalNameProvider:
    """The counter for the generated names of one StreamsBuilder (Kafka class: InternalNameProvider).

    It starts at 0.
    """

    def __init__(self) -> None:
        self._next_index = 0

    def new_processor_name(self, prefix: str) -> str:
        """Return `prefix` with the next number of the counter, as ten digits."""
        index = self._next_index
        self._next_index += 1
        return f"{prefix}{index:010d}"

    def new_store_name(self, prefix: str) -> str:
        """Return a generated store name: `prefix`, STATE-STORE and the next number of the counter."""
        return self.new_processor_name(prefix + _STATE_STORE)

    def processor_name(self, name: str | None, prefix: str) -> str:
        """Return `name`, or a generated name if it is None.

        Takes a number of the counter either way.
        """
        generated = self.new_processor_name(prefix)
        return generated if name is None else name

    def suffixed_name(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return `name` with `suffix`, or a generated name if `name` is None.

        Takes a number of the counter either way. Raises TopologyError if the name with its suffix is not legal.
        """
        generated = self.new_processor_name(prefix)
        return generated if name is None else check_name(name + suffix)


def check_name(name: str) -> str:
    """Return `name`; raises TopologyError if it is not legal (Kafka: Named.validate).

    Legal names have 1 to 249 letters, digits, '.', '_' and '-', and are not "." or "..".
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected a name, got {name!r}.")
    if not name:
        raise TopologyError("Name is illegal, it can't be empty")
    if name in (".", ".."):
        raise TopologyError('Name cannot be "." or ".."')
    if len(name) > MAX_LENGTH:
        raise TopologyError(f"Name is illegal, it can't be longer than {MAX_LENGTH} characters, name: {name}")
    if LEGAL.fullmatch(name) is None:
        raise TopologyError(
            f"Name \"{name}\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
        )
    return name


@dataclass(frozen=True)
class RepartitionNames:
    """The names of a repartition topic (no prefix) and of the nodes around it."""

    topic: str
    sink: str
    filter: str
    source: str

    @staticmethod
    def make(prefix: str, names: InternalNameProvider) -> RepartitionNames:
        """Return the names for a repartition topic.

        Takes three numbers of the counter in any case.

        Args:
            prefix: a generated name or the user's own, on which the names are based.
            names: the counter.
        """
        topic = prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX
        sink, filter, source = map(names.new_processor_name, (STREAM_SINK, STREAM_FILTER, STREAM_SOURCE))
        if _GENERATED_NAME.fullmatch(prefix):
            return RepartitionNames(topic, sink, filter, source)
        return RepartitionNames.of_topic(topic)

    @staticmethod
    def of_topic(topic: str) -> RepartitionNames:
        """Return the names that derive from the repartition topic `topic`."""
        return RepartitionNames(topic, f"{topic}-sink", f"{topic}-filter", f"{topic}-source")
