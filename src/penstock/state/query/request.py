"""A query of a store as it is put to an application, and what comes back: a result a partition (interactive queries,
version 2; KIP-796)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import Query


class FailureReason(Enum):
    """Why a partition has no result (Kafka class: FailureReason)."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """The store cannot answer such a query."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """An active task was asked for, and there is none here."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The store has not seen yet what it must have seen; ask again."""
    NOT_PRESENT = "NOT_PRESENT"
    """The partition is not here; ask elsewhere."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The partition is nowhere."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """The store failed."""


@dataclass(frozen=True)
class QueryResult:
    """What one partition answered (Kafka class: QueryResult).

    failure_reason: None for an answer. position: how far the partition had seen. execution_info: lines that show which
        store answered and how long (ns) it took, if requested.
    """

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    execution_info: tuple[str, ...] = ()

    @staticmethod
    def for_result(value: Any) -> QueryResult:
        """Answer with `value`."""
        return QueryResult(value)

    @staticmethod
    def for_failure(reason: FailureReason, message: str) -> QueryResult:
        """Answer that there is no answer, for `reason`; `message` says it for people."""
        return QueryResult(None, reason, message)

    @staticmethod
    def for_unknown_query_type(query: Query, store: Any) -> QueryResult:
        """Answer that `store` cannot answer such a query."""
        return QueryResult.for_failure(
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"This store ({type(store).__name__}) doesn't know how to execute the given query ({query}). Contact the "
            "store maintainer if you need support for a new query type.",
        )

    @staticmethod
    def not_up_to_bound(position: Position, bound: PositionBound, partition: int) -> QueryResult:
        """Answer that `partition` has not seen yet what `bound` asks for."""
        return QueryResult.for_failure(
            FailureReason.NOT_UP_TO_BOUND,
            f"For store partition {partition}, the current position {position} is not yet up to the bound {bound}",
        )

    def is_success(self) -> bool:
        """Return whether there is an answer."""
        return self.failure_reason is None

    def is_failure(self) -> bool:
        """Return whether there is none."""
        return self.failure_reason is not None

    @property
    def result(self) -> Any:
        """The answer; raises ValueError if there is none."""
        if self.failure_reason is not None:
            raise ValueError(
                f"Cannot get result for failed query. Failure is {self.failure_reason.name}: {self.failure_message}"
            )
        return self.value

    def with_position(self, position: Position) -> QueryResult:
        """Return a copy that says how far the partition had seen."""
        return replace(self, position=position)

    def add_execution_info(self, message: str) -> QueryResult:
        """Return a copy with another line of execution info."""
        return replace(self, execution_info=(*self.execution_info, message))


NOT_PRESENT = QueryResult.for_failure(
    FailureReason.NOT_PRESENT, "The requested partition was not present at the time of the query."
)
"""The answer of a partition that nobody has here."""

OF_GLOBAL_STORE = QueryResult.for_failure(
    FailureReason.UNKNOWN_QUERY_TYPE,
    "Global stores do not yet support the KafkaStreams#query API. Use KafkaStreams#store instead.",
)
"""The answer of a global store, to any query."""


@dataclass(frozen=True)
class StateQueryResult:
    """What all partitions answered (Kafka class: StateQueryResult). global_result: the answer of a global store."""

    partition_results: Mapping[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The one answer that is not None, None if there is none; raises ValueError if there are several."""
        found = [each for each in self.partition_results.values() if each.is_success() and each.result is not None]
        if len(found) > 1:
            raise ValueError(f"The query did not return exactly one partition result: {dict(self.partition_results)}")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """How far all partitions together had seen; a bound for the next request."""
        if self.global_result is not None:
            return self.global_result.position
        position = Position()
        for each in self.partition_results.values():
            position = position.merge(each.position)
        return position


@dataclass(frozen=True)
class StateQueryRequest:
    """A query for a store (Kafka class: StateQueryRequest).

    partitions: those to ask, None for all. position_bound: how far they must have seen. active_required: whether only
    an active task may answer. execution_info_enabled: whether results show which store answered.
    """

    store_name: str
    query: Query
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = field(default_factory=PositionBound)
    active_required: bool = False
    execution_info_enabled: bool = False

    @staticmethod
    def in_store(store_name: str) -> InStore:
        """Name the store; `with_query` adds the query."""
        return InStore(store_name)

    def with_all_partitions(self) -> StateQueryRequest:
        """Return a copy that asks all partitions."""
        return replace(self, partitions=None)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest:
        """Return a copy that asks only `partitions`."""
        return replace(self, partitions=frozenset(partitions))

    def with_position_bound(self, position_bound: PositionBound) -> StateQueryRequest:
        """Return a copy that accepts only answers of partitions that have reached `position_bound`."""
        return replace(self, position_bound=position_bound)

    def require_active(self) -> StateQueryRequest:
        """Return a copy that takes answers only of active tasks, whatever the bound."""
        return replace(self, active_required=True)

    def enable_execution_info(self) -> StateQueryRequest:
        """Return a copy whose results show which store answered, and how long it took."""
        return replace(self, execution_info_enabled=True)

    def is_all_partitions(self) -> bool:
        """Return whether the query reads all partitions."""
        return self.partitions is None


@dataclass(frozen=True)
class InStore:
    """A store that is going to be asked (Kafka class: StateQueryRequest.InStore)."""

    store_name: str

    def with_query(self, query: Query) -> StateQueryRequest:
        """Ask `query` of all partitions, without a bound."""
        return StateQueryRequest(self.store_name, query)
