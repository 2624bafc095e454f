"""The pauses of calls between two attempts. Calls that failed together go on together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.host.calls.lines import Call


class _Pause:
    """The calls that wait for one timer."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = dict.fromkeys(calls)
        self.timer: asyncio.TimerHandle | None = None


class CallPauses:
    """Lets calls wait in the current loop.

    Args:
        ended: receives the calls whose pause is over.
    """

    def __init__(self, ended: Callable[[Sequence[Call]], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._pauses: dict[Call, _Pause] = {}

    def begin(self, calls: Sequence[Call], seconds: float) -> None:
        """Begin one pause for several calls."""
        pause = _Pause(calls)
        pause.timer = self._loop.call_later(seconds, self._end, pause)
        self._pauses.update(dict.fromkeys(calls, pause))

    def cancel(self, call: Call) -> None:
        """End the pause of a call without notice; a call that does not pause is ignored."""
        pause = self._pauses.pop(call, None)
        if pause is None:
            return
        del pause.calls[call]
        if not pause.calls and pause.timer is not None:
            pause.timer.cancel()

    def _end(self, pause: _Pause) -> None:
        for call in pause.calls:
            del self._pauses[call]
        self._ended([*pause.calls])
