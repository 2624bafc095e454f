"""Serves an application's pages, in a thread that ends with the application.

The thread never keeps the program alive.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from typing import Any, Final

from penstock.application.comparison import Compare
from penstock.application.life import ApplicationLife
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.connections import BoundedServer
from penstock.tools.ui.control import Control
from penstock.tools.ui.observer import Observer
from penstock.tools.ui.routes import application

_log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 5.0


class UiServer:
    """Serves one application until it is closed.

    The constructor starts serving.

    Args:
        streams: the application.
        config: its configuration, with penstock.ui.port and penstock.ui.host.
        compare: returns the changes of its program; None if the file of the program is not known.

    Raises:
        ConfigError: the port is taken, or the address is not this machine's.
    """

    def __init__(self, streams: ApplicationLife[Any], config: StreamsConfig, compare: Compare | None = None) -> None:
        name = f"penstock-{config.required('application.id')}-ui"
        self._socket = _listening(config["penstock.ui.host"], config["penstock.ui.port"])
        self._observer = Observer(streams)
        control = Control(streams, config) if config["penstock.ui.control"] else None
        pages = application(Answers(self._observer, config, compare), control)
        self._server = BoundedServer(pages, config, "The port of the pages")
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        if control is None:
            self._observer.start(f"{name}-observer")
        else:
            self._observer.start(f"{name}-observer", control.close_unread_taps)
        self._thread.start()
        # For a person at the terminal, whatever the configuration of logging; the port may be any free one.
        print(f"{config['application.id']}: shows itself at {self.address}", file=sys.stderr, flush=True)
        if control is not None:
            print(f"{config['application.id']}: the token for control is {control.token}", file=sys.stderr, flush=True)

    @property
    def address(self) -> str:
        """The address for browsers."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            _log.exception("The pages at %s are no longer available; the application keeps running.", self.address)

    def close(self, timeout_ms: int) -> None:
        """Stop serving, after a moment for the requests in progress, within `timeout_ms`; harmless if called again."""
        self._observer.close()
        self._server.should_exit = True
        self._thread.join(min(_CLOSE_SECONDS, timeout_ms / 1000))
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises ConfigError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The application cannot show itself at {host}:{port}: {error}. Set penstock.ui.port and penstock.ui.host "
            "to a free port and an address of this machine."
        ) from error
