"""The user's listener for restores of stores; other modules restore and call it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.record import TopicPartition


class StateRestoreListener(ABC):
    """Observes the restores of the local copies of stores (Kafka class: StateRestoreListener).

    On Spark, a worker rebuilds the copy of a task's stores from the segments of the checkpoint, all stores of a task
    together; a copy that only lacks the newest commits is updated without a call. The topic is that of the store's
    changelog, even if the topic does not exist. Offsets count the entries of the task's segments, of all its stores;
    numbers of records refer to the one store. Global stores are restored from their topics, on each machine, if it has
    no copy or lacks the records between two starts of the application; their offsets are the topic's.

    Methods are called one at a time, by the driver's thread that watches the query, a few seconds late; the calls for a
    quick restore come together. If a method raises, the error is logged and the next method is still called.
    """

    @abstractmethod
    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        """Called at the start of a restore.

        Args:
            topic_partition: topic and partition of the store.
            store_name: the store.
            starting_offset: the first offset to be restored.
            ending_offset: the offset after the last.
        """

    @abstractmethod
    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """Called with the progress of a restore.

        Args:
            topic_partition: topic and partition of the store.
            store_name: the store.
            batch_end_offset: the last restored offset.
            num_restored: records restored since the last call.
        """

    @abstractmethod
    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        """Called at the end of a restore, with the number of its records."""

    def on_restore_suspended(  # noqa: B027  # optional, as in Kafka
        self, topic_partition: TopicPartition, store_name: str, total_restored: int
    ) -> None:
        """Called when a restore ended incomplete after `total_restored` records.

        Its worker was killed, or the query has ended. The next attempt starts a new restore.
        """
