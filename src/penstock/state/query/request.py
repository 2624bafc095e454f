"""Requests to query a store of an application, with one result per partition.

They belong to interactive queries, version 2 (KIP-796).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.config.isolation_level import IsolationLevel, checked_level
from penstock.errors import StreamsError
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import Query


class FailureReason(Enum):
    """The reason for a partition's missing result (Kafka class: FailureReason)."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """The store cannot answer such a query."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """The request requires an active task, which is not here."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The store has not reached the position bound yet; ask again."""
    NOT_PRESENT = "NOT_PRESENT"
    """The partition is not here; ask elsewhere."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The partition does not exist."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """The store failed."""


@dataclass(frozen=True)
class QueryResult:
    """The answer of one partition (Kafka class: QueryResult).

    Args:
        failure_reason: None for an answer.
        position: the position of the partition.
        execution_info: lines with the answering store and the duration (ns), if requested.
    """

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    execution_info: tuple[str, ...] = ()

    @staticmethod
    def for_result(value: Any) -> QueryResult:
        """Return a successful result with `value`."""
        return QueryResult(value)

    @staticmethod
    def for_failure(reason: FailureReason, message: str) -> QueryResult:
        """Return a failure for `reason`, with `message` for people."""
        return QueryResult(None, reason, message)

    @staticmethod
    def for_unknown_query_type(query: Query, store: Any) -> QueryResult:
        """Return a failure: `store` does not support such a query."""
        return QueryResult.for_failure(
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"This store ({type(store).__name__}) doesn't know how to execute the given query ({query}). Contact the "
            "store maintainer if you need support for a new query type.",
        )

    @staticmethod
    def not_up_to_bound(position: Position, bound: PositionBound, partition: int) -> QueryResult:
        """Return a failure: `partition` has not reached `bound` yet."""
        return QueryResult.for_failure(
            FailureReason.NOT_UP_TO_BOUND,
            f"For store partition {partition}, the current position {position} is not yet up to the bound {bound}",
        )

    def is_success(self) -> bool:
        """Return whether the result is an answer."""
        return self.failure_reason is None

    def is_failure(self) -> bool:
        """Return whether the result is a failure."""
        return self.failure_reason is not None

    @property
    def result(self) -> Any:
        """The answer; raises ValueError for a failure."""
        if self.failure_reason is not None:
            raise ValueError(
                f"Cannot get result for failed query. Failure is {self.failure_reason.name}: {self.failure_message}"
            )
        return self.value

    def with_position(self, position: Position) -> QueryResult:
        """Return a copy with the position of the partition."""
        return replace(self, position=position)

    def add_execution_info(self, message: str) -> QueryResult:
        """Return a copy with an additional line of execution info."""
        return replace(self, execution_info=(*self.execution_info, message))


NOT_PRESENT = QueryResult.for_failure(
    FailureReason.NOT_PRESENT, "The requested partition was not present at the time of the query."
)
"""The result for a partition that is not here."""

OF_GLOBAL_STORE = QueryResult.for_failure(
    FailureReason.UNKNOWN_QUERY_TYPE,
    "Global stores do not yet support the KafkaStreams#query API. Use KafkaStreams#store instead.",
)
"""The result of a global store for any query."""


@dataclass(frozen=True)
class StateQueryResult:
    """The answers of all partitions (Kafka class: StateQueryResult).

    global_result: the answer of a global store.
    """

    partition_results: Mapping[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The only answer that is not None, or None without one.

        Raises ValueError for several answers, and StreamsError without an answer if a partition failed: the key may be
        in it.
        """
        found = [each for each in self.partition_results.values() if each.is_success() and each.result is not None]
        if len(found) > 1:
            raise ValueError(f"The query did not return exactly one partition result: {dict(self.partition_results)}")
        if found:
            return found[0]
        for partition, each in sorted(self.partition_results.items()):
            if each.failure_reason is not None:
                raise StreamsError(
                    f"Partition {partition} has no result: {each.failure_reason.name}: {each.failure_message} Look at "
                    "failure_reason of each of partition_results before you take the only result."
                )
        return None

    @property
    def position(self) -> Position:
        """The combined position of all partitions; usable as a bound for the next request."""
        if self.global_result is not None:
            return self.global_result.position
        position = Position()
        for each in self.partition_results.values():
            position = position.merge(each.position)
        return position


@dataclass(frozen=True)
class StateQueryRequest:
    """A query for a store (Kafka class: StateQueryRequest).

    Args:
        store_name: the name of the store.
        query: the query.
        partitions: the partitions to query; None for all.
        position_bound: the position that they must have reached.
        active_required: whether only an active task may answer.
        execution_info_enabled: whether results include the answering store.
        isolation_level: the level of the reads; None for `default.interactive.query.isolation.level`.

    Raises:
        TypeError: the isolation level is another value.
    """

    store_name: str
    query: Query
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = field(default_factory=PositionBound)
    active_required: bool = False
    execution_info_enabled: bool = False
    isolation_level: IsolationLevel | None = None

    def __post_init__(self) -> None:
        if self.isolation_level is not None:
            checked_level(self.isolation_level)

    @staticmethod
    def in_store(store_name: str) -> InStore:
        """Return a request builder for a store; `with_query` adds the query."""
        return InStore(store_name)

    def with_all_partitions(self) -> StateQueryRequest:
        """Return a copy for all partitions."""
        return replace(self, partitions=None)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest:
        """Return a copy for only these partitions."""
        return replace(self, partitions=frozenset(partitions))

    def with_position_bound(self, position_bound: PositionBound) -> StateQueryRequest:
        """Return a copy that accepts only partitions that have reached `position_bound`."""
        return replace(self, position_bound=position_bound)

    def require_active(self) -> StateQueryRequest:
        """Return a copy that accepts only active tasks, whatever the bound."""
        return replace(self, active_required=True)

    def enable_execution_info(self) -> StateQueryRequest:
        """Return a copy with the answering store and the duration in the results."""
        return replace(self, execution_info_enabled=True)

    def with_isolation_level(self, isolation_level: IsolationLevel) -> StateQueryRequest:
        """Return a copy that reads at this isolation level (KIP-892); raises TypeError for any other value."""
        return replace(self, isolation_level=checked_level(isolation_level))

    def is_all_partitions(self) -> bool:
        """Return whether the query reads all partitions."""
        return self.partitions is None


@dataclass(frozen=True)
class InStore:
    """A store to be queried (Kafka class: StateQueryRequest.InStore)."""

    store_name: str

    def with_query(self, query: Query) -> StateQueryRequest:
        """Return a request for `query` to all partitions, without a bound."""
        return StateQueryRequest(self.store_name, query)
