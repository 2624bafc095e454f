"""The notebook of the examples in a kernel of Jupyter: what a front end receives, and what is left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from penstock.notebook import HTML, MERMAID, SVG, TEXT
from tests.host.support import wait_for

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
VIEW = 'streams.view("counts", refresh_ms=100)'
SECONDS = 60
"""The longest silence of the kernel: a cell takes a few seconds."""

LEFT = """
import psutil, threading
processes = psutil.Process().children(recursive=True)
sorted(thread.name for thread in threading.enumerate()), sorted(process.pid for process in processes)
"""
"""Shows the threads and the processes of a kernel."""


class Cell:
    """What a front end has received of a cell."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.updates: list[dict[str, str]] = []
        """What has replaced an output with the same display_id."""
        self.printed = ""
        self.is_done = False
        self.display_ids: set[str] = set()

    @property
    def shown(self) -> dict[str, str]:
        """The last output, by MIME type."""
        return self.outputs[-1]

    @property
    def result(self) -> str:
        """The last output as text."""
        return self.shown[TEXT]


class Kernel:
    """A kernel, and what its cells show, also after they have run."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self._cells: dict[str, Cell] = {}

    def run(self, source: str) -> Cell:
        """Run a cell; fails with its traceback."""
        cell = self._cells[self._client.execute(source)] = Cell()
        self.wait_for(lambda: cell.is_done)
        return cell

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Receive until `condition` holds; raises queue.Empty if the kernel is silent before."""
        while not condition():
            message = self._client.get_iopub_msg(timeout=SECONDS)
            cell = self._cells.get(message["parent_header"].get("msg_id"))
            if cell is not None:
                _receive(cell, message["msg_type"], message["content"])


def _receive(cell: Cell, kind: str, content: dict[str, Any]) -> None:
    if kind == "error":
        pytest.fail("\n".join(content["traceback"]))
    elif kind == "stream":
        cell.printed += content["text"]
    elif kind in ("display_data", "execute_result"):
        cell.outputs.append(content["data"])
        cell.display_ids.add(content.get("transient", {}).get("display_id", ""))
    elif kind == "update_display_data":
        assert content["transient"]["display_id"] in cell.display_ids
        cell.updates.append(content["data"])
    elif kind == "status" and content["execution_state"] == "idle":
        cell.is_done = True


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    own = {name: str(tmp_path / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "TMPDIR")}
    for directory in own.values():
        Path(directory).mkdir()
    manager = KernelManager(kernel_name="python3", connection_file=str(tmp_path / "kernel.json"))
    manager.start_kernel(env={**os.environ, **own}, cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def sources() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_a_kernel_runs_all_cells_twice_and_nothing_is_left_behind(kernel: Kernel, tmp_path: Path) -> None:
    before = kernel.run(LEFT).result
    for waits in (False, True):
        cells: dict[str, Cell] = {}
        for source in sources():
            cells[source.rpartition("\n")[2]] = kernel.run(source)
            if waits and "to suffer" in source:  # the first time, the notebook runs as fast as it can
                view = cells[VIEW]
                kernel.wait_for(lambda view=view: any("suffer" in each[HTML] for each in view.updates))
                assert len(view.outputs) == len(view.display_ids) == 1
        for shows_topology in ("counts", "streams"):
            assert cells[shows_topology].shown.keys() == {TEXT, HTML, SVG, MERMAID}
        assert cells["streams"].shown[TEXT].startswith("KafkaStreams words (state: RUNNING, host: threads)")
        assert "<table>" in cells["words.head(5, config)"].shown[HTML]
        assert "letters" in cells["table.slice(0, 3).to_pandas()"].printed
        assert "store initials is new" in cells["streams.edit(builder.build())"].shown[HTML]
        assert kernel.run("broker.pid, broker._data_dir.exists()").result == "(None, False)"
        assert list((tmp_path / "TMPDIR").iterdir()) == []
    wait_for(lambda: kernel.run(LEFT).result == before)
