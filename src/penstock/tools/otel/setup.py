"""The call of the user's function that configures OpenTelemetry."""

from __future__ import annotations

import threading

from penstock.config import StreamsConfig
from penstock.errors import ConfigError

_lock = threading.Lock()
_is_set_up = threading.Event()


def set_up(config: StreamsConfig) -> None:
    """Call `penstock.otel.setup` once per process; raises ConfigError if it fails."""
    function = config["penstock.otel.setup"]
    with _lock:
        if function is None or _is_set_up.is_set():
            return
        try:
            function()
        except Exception as error:
            raise ConfigError(f"The function of penstock.otel.setup failed: {type(error).__name__}: {error}") from error
        _is_set_up.set()
