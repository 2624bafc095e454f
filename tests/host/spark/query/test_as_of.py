"""State as of an earlier commit: by epoch and by time, on the command line and from programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import (
    Materialized,
    QueryableStoreTypes,
    StoreQueryParameters,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    open_state,
)
from penstock.errors import InvalidStateStoreError, StateStoreNotAvailableError
from penstock.host.api import AsOf
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_topologies import TEXT

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 1)]

ONE_MS = timedelta(milliseconds=1)
COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


def counting(source: str, others: str, *more: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(source, consumed=TEXT).group_by_key()
    for name in ("counts", *more):
        grouped.count(materialized=Materialized.as_(name))
    builder.global_table(others, TEXT, Materialized.as_("names"))
    return builder.build()


@pytest.fixture
def config(spark_runner: SparkRunner, application: str) -> StreamsConfig:
    return spark_runner.config(application, {"penstock.manifests.retained": 3})


@pytest.fixture
def topology(topics: tuple[str, str]) -> Topology:
    return counting(*topics)


@pytest.fixture
def query(spark_runner: SparkRunner, config: StreamsConfig, topics: tuple[str, str], topology: Topology) -> InlineQuery:
    """An application with five commits, which have counted one more record of the key a each."""
    query = InlineQuery(topology, config, spark_runner.admin)
    for number in range(5):
        spark_runner.write(topics[0], [InputRecord(b"a", b"", 1_000 + number)])
        query.run_to_end()
    return query


def committed(config: StreamsConfig, epoch: int) -> datetime:
    """Return the time of a commit."""
    manifest = checkpoint_of(config).read_manifest(epoch, "")
    assert manifest is not None
    return datetime.fromtimestamp(manifest.committed_ms / 1000, UTC)


def count(topology: Topology, config: StreamsConfig, as_of: AsOf | None) -> int:
    with open_state(topology, config, as_of) as state:
        found: int = state.store(COUNTS).get("a")
        return found


@pytest.mark.parametrize(("as_of", "expected"), [(None, 5), (3, 3), (5, 5)])
def test_the_commit_of_an_epoch_is_read(
    query: InlineQuery, topology: Topology, config: StreamsConfig, as_of: int | None, expected: int
) -> None:
    assert count(topology, config, as_of) == expected


def test_the_last_commit_at_a_time_is_read(query: InlineQuery, topology: Topology, config: StreamsConfig) -> None:
    assert count(topology, config, committed(config, 4)) == 4
    assert count(topology, config, committed(config, 4) - ONE_MS) == 3
    assert count(topology, config, committed(config, 4).astimezone().replace(tzinfo=None)) == 4
    assert count(topology, config, committed(config, 5) + timedelta(days=1)) == 5


def test_a_commit_that_is_not_retained_is_refused(
    query: InlineQuery, topology: Topology, config: StreamsConfig
) -> None:
    oldest = committed(config, 3)
    for as_of in (1, 6, oldest - ONE_MS):
        with pytest.raises(
            StateStoreNotAvailableError, match=r"has no commit of .*: it has the epochs 3, committed at"
        ):
            count(topology, config, as_of)


def test_later_commits_do_not_change_what_is_read(
    spark_runner: SparkRunner, query: InlineQuery, topics: tuple[str, str], topology: Topology, config: StreamsConfig
) -> None:
    with open_state(topology, config, committed(config, 5)) as state:
        store = state.store(COUNTS)
        assert store.get("a") == 5
        spark_runner.write(topics[0], [InputRecord(b"a", b"", 2_000)])
        query.run_to_end()
        assert store.get("a") == 5
        assert state.staleness().epoch == 5


def test_commits_of_an_earlier_topology_version_are_refused(
    query: InlineQuery, topics: tuple[str, str], config: StreamsConfig
) -> None:
    changed = counting(*topics, "more")
    query.change(changed)
    with pytest.raises(StateStoreNotAvailableError, match="of the present topology version"):
        count(changed, config, 5)
    assert count(changed, config, 6) == 5


def test_a_global_store_has_no_earlier_commits(query: InlineQuery, topology: Topology, config: StreamsConfig) -> None:
    names = StoreQueryParameters.from_name_and_type("names", QueryableStoreTypes.key_value_store())
    with open_state(topology, config, 5) as state, pytest.raises(InvalidStateStoreError, match="is a global store"):
        state.store(names).get("a")
