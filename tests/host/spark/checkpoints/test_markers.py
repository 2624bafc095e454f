"""Each start compares the checkpoint with what Kafka knows to be committed: nothing is written twice unnoticed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import savepoints
from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, IncompatibleCheckpointError, TransactionalIdAuthorizationError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.resetting import planned_reset, reset_application
from penstock.host.spark.protocol import transactions
from penstock.host.spark.protocol.transactions import commits_topic, guarantee_of
from penstock.record import TopicPartition
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import assert_counted_one_by_one, final, word_count
from tests.support.waiting import until


class Application:
    """A word count, whose checkpoint is copied, damaged and lost."""

    def __init__(self, runner: SparkRunner, application: str, topics: tuple[str, str]) -> None:
        self.runner, self.topics, self.name = runner, topics, application
        self.config = runner.config(application)
        self.directory = Path(self.config.checkpoint_directory())
        self.expected: dict[str, int] = {}

    def start(self, config: StreamsConfig | None = None) -> InlineQuery:
        return InlineQuery(word_count(*self.topics), config or self.config, self.runner.admin)

    def write(self, text: str) -> None:
        self.runner.write(self.topics[0], lines([text]))
        for word in text.split():
            self.expected[word] = self.expected.get(word, 0) + 1

    def assert_exact(self) -> None:
        records = self.runner.read(self.topics[1])
        assert final(records) == self.expected
        assert_counted_one_by_one(records)

    def file(self, pattern: str) -> Path:
        """Return the last file of the checkpoint, by name, that `pattern` matches."""
        return sorted(self.directory.glob(pattern))[-1]


@pytest.fixture
def word_counting(spark_runner: SparkRunner, application: str, topics: tuple[str, str]) -> Application:
    """An application that has committed some epochs."""
    counting = Application(spark_runner, application, topics)
    query = counting.start()
    for text in ("a b", "b c", "a d"):
        counting.write(text)
        query.run_to_end()
    return counting


def test_a_lost_checkpoint_is_refused_until_the_application_is_reset(word_counting: Application) -> None:
    kept = word_counting.directory.with_name("kept")
    word_counting.directory.rename(kept)
    with pytest.raises(IncompatibleCheckpointError, match=r"has committed 3 epochs: .*penstock reset FILE"):
        word_counting.start()
    shutil.rmtree(word_counting.directory)  # the number of the driver that was refused
    kept.rename(word_counting.directory)
    word_counting.start().run_to_end()
    word_counting.assert_exact()
    built = word_count(*word_counting.topics).build(word_counting.name)
    admin = word_counting.runner.admin
    plan = planned_reset(built, word_counting.config, admin.topics())
    assert (plan.epoch, plan.topics) == (3, (commits_topic(word_counting.name),))
    assert reset_application(built, word_counting.config, admin) == plan
    assert not word_counting.directory.exists()
    before = word_counting.runner.read(word_counting.topics[1])
    word_counting.start().run_to_end()
    again = word_counting.runner.read(word_counting.topics[1])[len(before) :]
    assert final(again) == word_counting.expected


def test_an_older_copy_is_refused_and_its_savepoint_continues(word_counting: Application, tmp_path: Path) -> None:
    shutil.copytree(word_counting.directory, tmp_path / "older")
    query = word_counting.start()
    for text in ("e", "f a"):
        word_counting.write(text)
        query.run_to_end()
    shutil.rmtree(word_counting.directory)
    shutil.copytree(tmp_path / "older", word_counting.directory)
    with pytest.raises(IncompatibleCheckpointError, match=r"ends with epoch 3, and Kafka has epoch 5 .*older copy"):
        word_counting.start()
    savepoints.take(str(word_counting.directory), str(tmp_path / "savepoint"))
    shutil.rmtree(word_counting.directory)
    savepoints.restore(str(tmp_path / "savepoint"), word_counting.config)
    for _ in range(2):
        word_counting.start().run_to_end()
    records = word_counting.runner.read(word_counting.topics[1])
    assert final(records) == word_counting.expected  # "e" and "f a" are there twice, as was asked for


def test_a_copy_without_generations_continues(word_counting: Application) -> None:
    shutil.rmtree(word_counting.directory / "generations")
    query = word_counting.start()
    word_counting.write("a b")
    query.run_to_end()
    word_counting.assert_exact()


def test_an_epoch_whose_manifest_was_deleted_is_run_again_and_written_once(word_counting: Application) -> None:
    word_counting.file("manifests/*").unlink()
    word_counting.write("z")
    word_counting.start().run_to_end()
    word_counting.assert_exact()


@pytest.mark.parametrize("also", ["offsets/*", "manifests/*"])
def test_an_epoch_that_is_committed_and_forgotten_is_refused(word_counting: Application, also: str) -> None:
    word_counting.file("manifests/*").unlink()
    word_counting.file(also).unlink()
    with pytest.raises(Exception, match=r"manifests/0+2 cannot be used|offsets/.* is missing"):
        word_counting.start()


def test_an_epoch_that_would_be_made_of_other_input_is_not_taken_for_the_same(
    word_counting: Application, crashes: Callable[..., Crashes]
) -> None:
    query = word_counting.start()
    word_counting.write("a b c d e f g h")
    crashes(at="transaction.after")
    with pytest.raises(KilledError):
        query.run_to_end()
    planned = word_counting.file("offsets/*")
    planned.unlink()
    checkpoint = Checkpoint(str(word_counting.directory))
    assert query.description.start is not None
    begun = query.description.start.to_json()
    checkpoint.write_offset(4, int(planned.name.partition(".")[2]), {**begun, "epoch": 4})
    with pytest.raises(IncompatibleCheckpointError, match="is not the offset with which that epoch was written"):
        word_counting.start()


def test_a_transaction_that_a_killed_driver_left_open_is_ended(
    word_counting: Application, crashes: Callable[..., Crashes]
) -> None:
    query = word_counting.start()
    word_counting.write("a b c d e f g h")
    crashes(at="transaction.open")
    with pytest.raises(KilledError):
        query.run_to_end()
    word_counting.start().run_to_end()
    word_counting.assert_exact()


def test_an_application_on_the_wrong_checkpoint_does_not_disturb_the_one_that_runs(
    word_counting: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = word_counting.start()
    word_counting.write("a b c d e f g h")
    elsewhere = word_counting.runner.config(word_counting.name, {"penstock.checkpoint.dir": str(tmp_path / "empty")})
    refused: list[str] = []

    def start_elsewhere(name: str, epoch: int) -> None:
        if name == "transaction.open":
            with pytest.raises(IncompatibleCheckpointError) as caught:
                word_counting.start(elsewhere)
            refused.append(str(caught.value))

    monkeypatch.setattr("penstock.host.spark.protocol.transactions.crash_point", start_elsewhere)
    query = word_counting.start()
    query.run_to_end()
    assert refused
    word_counting.assert_exact()


def test_another_checkpoint_with_this_application_id_is_refused(word_counting: Application, tmp_path: Path) -> None:
    elsewhere = word_counting.runner.config(word_counting.name, {"penstock.checkpoint.dir": str(tmp_path / "other")})
    own = elsewhere.overridden({"processing.guarantee": "at_least_once"})
    InlineQuery(word_count(*word_counting.topics), own, word_counting.runner.admin).run_to_end()
    with pytest.raises(IncompatibleCheckpointError, match="is not the checkpoint from which"):
        word_counting.start(elsewhere)


def test_a_deleted_topic_of_markers_is_refused_only_while_it_must_say_whether_an_epoch_is_written(
    word_counting: Application, crashes: Callable[..., Crashes]
) -> None:
    admin, topic = word_counting.runner.admin, commits_topic(word_counting.name)

    def delete() -> None:
        admin.delete_topics([topic])
        assert until(lambda: topic not in admin.topics())

    delete()
    query = word_counting.start()
    word_counting.write("a b c")
    crashes(at="transaction.after")
    with pytest.raises(KilledError):
        query.run_to_end()
    delete()
    with pytest.raises(IncompatibleCheckpointError, match=rf"{topic} was deleted, .* epoch 4 .* penstock reset FILE"):
        word_counting.start()
    assert topic not in admin.topics()


def test_markers_of_the_group_that_held_them_once_are_found(word_counting: Application) -> None:
    admin, topic = word_counting.runner.admin, commits_topic(word_counting.name)
    partitions = [TopicPartition(topic, number) for number in range(admin.topics()[topic])]
    found = admin.committed_offsets(topic, partitions)
    assert found
    as_once = {tp: OffsetAndMetadata(each.offset, each.metadata.partition(" ")[0]) for tp, each in found.items()}
    admin.delete_groups([topic])
    admin.commit_offsets(word_counting.name, as_once)
    word_counting.write("a")
    word_counting.start().run_to_end()
    word_counting.assert_exact()
    moved = admin.committed_offsets(topic, partitions)
    assert {tp for tp, each in moved.items() if each.offset <= 3} <= as_once.keys()
    assert max(each.offset for each in moved.values()) == 4


def test_a_missing_right_to_transactions_is_reported_and_lowers_no_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> str | None:
        raise TransactionalIdAuthorizationError("not allowed.")

    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    monkeypatch.setattr(transactions, "transactions_refused", forbidden)
    with pytest.raises(TransactionalIdAuthorizationError, match=r"prefix app-, or set processing\.guarantee"):
        guarantee_of(config, "app")
    at_least_once = config.overridden({"processing.guarantee": "at_least_once"})
    assert guarantee_of(at_least_once, "app", is_transactional=True) == (False, "at_least_once")


def test_the_guarantee_of_a_life_is_not_lowered_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    monkeypatch.setattr(transactions, "transactions_refused", lambda *_: "not served")
    assert guarantee_of(config, "app") == (False, "at_least_once (the broker has no transactions)")
    with pytest.raises(ConfigError, match="what it has written so far"):
        guarantee_of(config, "app", is_transactional=True)
    asked = config.overridden({"processing.guarantee": "exactly_once_v2"})
    with pytest.raises(ConfigError, match=r"processing\.guarantee=exactly_once_v2.*needs transactions"):
        guarantee_of(asked, "app")
