"""StoreView: a store of a running application that redraws itself in a notebook."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.extras import load
from penstock.notebook import Forms
from penstock.state.table import StoreTable
from penstock.tabular import Tabular

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class StoreView(Tabular):
    """A store that redraws itself in place in a notebook; created by `KafkaStreams.view`.

    It ends with the application, with `close`, or when another view of the same store is opened. A terminal shows it
    once.

    Args:
        store: the store to show.
        is_over: returns True after the end of the application.
        refresh_ms: the interval between reads of the store (ms).
        rows: the number of first entries shown.
    """

    def __init__(self, store: StoreTable, is_over: Callable[[], bool], refresh_ms: int, rows: int) -> None:
        self._store = store
        self._is_over = is_over
        self._refresh_seconds = refresh_ms / 1_000
        self._rows = rows
        self._closed = threading.Event()
        self._changing = threading.Lock()
        self._handles: list[Any] = []
        self._drawn: dict[str, str] = {}

    def close(self) -> None:
        """Stop redrawing; the last drawing stays."""
        self._closed.set()

    def redraw(self) -> None:
        """Redraw the store in all its displays, if it has changed."""
        with self._changing:
            shown = self._repr_mimebundle_()
            if shown != self._drawn:
                self._drawn = shown
                for handle in self._handles:
                    handle.update(shown, raw=True)

    def _ipython_display_(self) -> None:
        display = load("IPython.display", "A view in a notebook").display
        shell = load("IPython", "A view in a notebook").get_ipython()
        terminal = load("IPython.terminal.interactiveshell", "A view in a notebook").TerminalInteractiveShell
        with self._changing:
            self._drawn = self._repr_mimebundle_()
            handle = display(self._drawn, raw=True, display_id=True)
            if isinstance(shell, terminal):  # it would print each update below the previous one
                return
            self._handles.append(handle)
            if len(self._handles) == 1:
                # The context has the cell for the kernel's output.
                draw = partial(copy_context().run, self._keep_drawing)
                threading.Thread(target=draw, name=f"view-{self._store.name}", daemon=True).start()

    def _keep_drawing(self) -> None:
        while not self._closed.wait(self._refresh_seconds) and not self._is_over():
            try:
                self.redraw()
            except Exception:
                _log.exception("The view of store %s is no longer redrawn.", self._store.name)
                return

    def _arrow_reader(self) -> pa.RecordBatchReader:
        return self._store._arrow_reader()

    def _title(self) -> str:
        return self._store._title()

    def _table(self, limit: int) -> Forms:
        return self._store._table(self._rows)
