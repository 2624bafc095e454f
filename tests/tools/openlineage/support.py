"""A receiver of the events of OpenLineage, and their validation by the published schemas."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

Event = dict[str, Any]

_SCHEMAS: Final = [
    json.loads(path.read_text(encoding="utf-8")) for path in (Path(__file__).parent / "schemas").glob("*.json")
]
_REGISTRY: Final = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in _SCHEMAS)


def check(event: Event) -> None:
    """Validate an event and each of its facets by the schemas that they name."""
    _check(event, event["schemaURL"])
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for facet in (facet for holder in holders for facet in holder["facets"].values()):
        _check(facet, facet["_schemaURL"])


def _check(value: Mapping[str, Any], schema: str) -> None:
    validator = Draft202012Validator({"$ref": schema}, registry=_REGISTRY, format_checker=FormatChecker())
    validator.validate(value)


class Receiver:
    """An HTTP server that keeps the events it receives.

    Args:
        server: the server.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.events: list[Event] = []
        self.requests = 0
        self.status = 201
        self.answers = threading.Event()
        self.answers.set()

    def states(self) -> list[str]:
        """Return the states of the events."""
        return [event["eventType"] for event in self.events]

    def config(self, **transport: Any) -> dict[str, Any]:
        """Return the configuration of an application that emits to this receiver."""
        url = {"type": "http", "url": self.url, **transport}
        return {"penstock.openlineage.enabled": True, "penstock.openlineage.config": {"transport": url}}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Yield a receiver at a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests += 1
            receiver.answers.wait()
            if receiver.status == 201:
                event = json.loads(body)
                check(event)
                receiver.events.append(event)
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.answers.set()
            server.shutdown()
            thread.join()
