"""The listener that users write to follow restores of stores. Restoring, and calling the listener, is elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.record import TopicPartition


class StateRestoreListener(ABC):
    """Receives the restores of the local copies of stores (Kafka class: StateRestoreListener).

    On Spark, a worker rebuilds the copy of a task's stores from the segments of the checkpoint, all stores of a task
    together; a copy that only lacks the newest commits is updated without a call. The topic is the one that the
    changelog topic of the store would be. Offsets count the entries of the segments of the task, of all its stores;
    numbers of records are those of the one store. Global stores are restored from their topics, on each machine, where
    it has none and with what came between two starts of the application; there offsets are those of the topic.

    Methods are called one at a time, by the thread of the driver that watches the query, some seconds late; the calls
    for a quick restore come together. One that raises is logged, and the next is called all the same.
    """

    @abstractmethod
    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        """Called when a restore has started.

        Args:
            topic_partition: topic and partition that hold the store.
            store_name: the store.
            starting_offset: the first offset that is to be restored.
            ending_offset: that behind the last.
        """

    @abstractmethod
    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """Called with the progress of a restore.

        Args:
            topic_partition: topic and partition that hold the store.
            store_name: the store.
            batch_end_offset: the last offset that was restored.
            num_restored: records restored since the last call.
        """

    @abstractmethod
    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        """Called when a restore is complete, with `total_restored` records."""

    def on_restore_suspended(  # noqa: B027  # as in Kafka, nobody has to say anything to it
        self, topic_partition: TopicPartition, store_name: str, total_restored: int
    ) -> None:
        """Called when a restore ended incomplete after `total_restored` records: its worker was killed, or the query
        has ended. The next attempt starts a new restore."""
