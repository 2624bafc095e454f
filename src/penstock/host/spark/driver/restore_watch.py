"""Watches running restores, for the driver.

It reads the files that workers write (`worker/restore_progress`), logs them, and notifies the listener of the
application.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.worker.restore_progress import RestoreState, StoreRestore
from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener
from penstock_broker.common.clock import elapsed_milliseconds

_log = logging.getLogger(__name__)

_LOOK_MS = 2_000


class RestoreWatch:
    """Running restores, polled every two seconds.

    Args:
        checkpoint: the checkpoint whose restores are watched. Nothing is read before the first look.
        listener: receives the events of restores.
    """

    def __init__(self, checkpoint: Checkpoint, listener: StateRestoreListener | None = None) -> None:
        self._checkpoint = checkpoint
        self._listener = listener or _Nobody()
        self._is_heard = listener is not None
        self._looked_ms: int | None = None
        self._states: dict[str, RestoreState] = {}

    def look(self, generation: int, committed_epoch: int) -> None:
        """Report news of the epoch after `committed_epoch`, if a look is due.

        Also deletes the files of finished restores.
        """
        now = elapsed_milliseconds()
        if self._looked_ms is None or now - self._looked_ms >= _LOOK_MS:
            self._looked_ms = now
            self._look(generation, committed_epoch)

    def end(self, generation: int, committed_epoch: int) -> None:
        """Look for the last time in a query: restores that are not done are suspended."""
        self._look(generation, committed_epoch)
        for name in list(self._states):
            self._gone(name)

    def snapshot(self) -> dict[str, tuple[int, int]]:
        """Return (entries restored, entries in all) of each running restore, by task id."""
        return {state.task: (state.restored, state.total) for state in list(self._states.values())}

    def _look(self, generation: int, committed_epoch: int) -> None:
        running: set[str] = set()
        files = self._checkpoint.restores()
        for name in [each.name for each in files.find("") if each.name[0] != "."]:
            data = files.read(name)
            state = None if data is None else RestoreState.decode(data)
            if state is not None and state.generation > generation:
                continue  # belongs to a driver that has taken over
            if state is not None and state.generation == generation and (state.done or state.epoch > committed_epoch):
                self._take(name, state)
                if not state.done:
                    running.add(name)
                    continue
            files.delete(name)
        for name in self._states.keys() - running:
            self._gone(name)

    def _take(self, name: str, state: RestoreState) -> None:
        """Process the progress of a restore."""
        before = self._states.get(name)
        if state != before:
            self._tell_progress(before, state)
        if not state.done:
            self._states[name] = state
            if state != before:
                _log.info("Task %s restores its state: %d of %d entries.", state.task, state.restored, state.total)
            return
        for store in state.stores:
            self._tell(self._listener.on_restore_end, store, store.restored)
        if self._states.pop(name, None) is not None:
            _log.info("Task %s has restored its state.", state.task)

    def _gone(self, name: str) -> None:
        """Treat a restore without further reports as ended. Without a listener, all restores end this way."""
        state = self._states.pop(name)
        if not (self._is_heard and state.stores):
            _log.info("Task %s has restored its state.", state.task)
        for store in state.stores:
            self._tell(self._listener.on_restore_suspended, store, store.restored)

    def _tell_progress(self, before: RestoreState | None, state: RestoreState) -> None:
        told = {} if before is None else {store[:3]: store.restored for store in before.stores}
        for store in state.stores:
            if store[:3] not in told:
                self._tell(self._listener.on_restore_start, store, store.start, store.end)
            more = store.restored - told.get(store[:3], 0)
            if more > 0:
                self._tell(self._listener.on_batch_restored, store, store.reached - 1, more)

    def _tell(self, method: Callable[..., None], store: StoreRestore, *figures: int) -> None:
        """Call a listener method with partition and name of `store`, and `figures`."""
        try:
            method(TopicPartition(store.topic, store.partition), store.store, *figures)
        except Exception:
            _log.exception("The restore listener failed on store %s; it will receive the next event.", store.store)


class _Nobody(StateRestoreListener):
    """The default listener. It ignores all events."""

    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        """Do nothing."""

    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """Do nothing."""

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        """Do nothing."""
