"""Takes the pictures of `docs/ui.md` in Chromium, of a word count that runs: docs/images/ui-*.png.

    python scripts/screenshots.py

The word count runs on the threads host over an embedded broker for about half a minute, and fails once.
"""

from __future__ import annotations

import base64
import struct
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock import KafkaStreams, Materialized, Serdes, StreamsBuilder, Topology
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.host.api import StreamThreadExceptionResponse
from penstock_broker.process import BrokerProcess
from tests.support.browser import Browser

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "images"
TEXT: Final = ("the quick brown fox jumps over the lazy dog", "a stream of records", "the state of a stream")
SECONDS: Final = 25.0
POISON: Final = "poison"
COLOURS: Final = 256

Pixels = NDArray[np.uint8]


class Picture(NamedTuple):
    """One picture. page: its address. width, height: in pixels. scheme: the colours of the system. script: what a
    reader does on the page first."""

    name: str
    page: str
    width: int = 1_280
    height: int = 640
    scheme: str = "light"
    script: str = "0"


PICTURES: Final = (
    Picture("overview", "", height=840),
    Picture("topology", "topology?measure=records", height=800),
    Picture("tasks", "tasks"),
    Picture("commits", "commits"),
    Picture("state", "state?store=counts", height=760),
    Picture("errors", "errors", height=320),
    Picture("control", "control", script="document.querySelector('[value=pause]').checked = true"),
    Picture("phone", "", width=390, height=844),
    Picture("dark", "topology?measure=time&folded=0", scheme="dark"),
)


def word_count() -> Topology:
    """Return a word count that fails at the word POISON, once."""
    failed: list[str] = []

    def words(line: str) -> list[str]:
        if line == POISON and not failed:
            failed.append(line)
            raise ValueError("no such word")
        return line.split()

    builder = StreamsBuilder()
    lines = builder.stream("lines").flat_map_values(words)
    counts = lines.group_by(lambda _, word: word).count(Materialized.as_("counts"))
    counts.to_stream().map_values(str).to("counts-out")
    return builder.build()


@contextmanager
def application(directory: Path) -> Iterator[str]:
    """Run the word count, and something that writes; yields the address of the pages."""
    with BrokerProcess(directory / "broker") as broker:
        admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": broker.bootstrap_servers}))
        admin.create_topics([NewTopic("lines", 3), NewTopic("counts-out", 3)])
        admin.close()
        config = {
            "application.id": "word-count",
            "bootstrap.servers": broker.bootstrap_servers,
            "penstock.host": "threads",
            "state.dir": str(directory / "state"),
            "default.key.serde": Serdes.string(),
            "default.value.serde": Serdes.string(),
            "commit.interval.ms": 500,
            "metrics.recording.level": "DEBUG",
            "penstock.ui.port": 0,
            "penstock.ui.control": True,
        }
        streams = KafkaStreams(word_count(), config)
        streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.REPLACE_THREAD)
        ended = threading.Event()
        with streams:
            writer = threading.Thread(target=write, args=(broker.bootstrap_servers, ended))
            writer.start()
            try:
                yield streams._servers[0].address  # type: ignore[attr-defined]  # the port is any free one
            finally:
                ended.set()
                writer.join()


def write(servers: str, ended: threading.Event) -> None:
    """Write lines until the end, and the one at which the word count fails."""
    producer = ConfluentProducer(StreamsConfig({"bootstrap.servers": servers}))
    number = 0
    while not ended.wait(0.05):
        for line in TEXT:
            number += 1
            producer.send("lines", None, line.encode(), number % 3)
        if number == 30:
            producer.send("lines", None, POISON.encode(), 0)
    producer.close()


# ---------------------------------------- pictures


def unpacked(png: bytes) -> Pixels:
    """Return the pixels (rows, columns, red green blue) of a PNG of 8 bits without a palette, as Chromium writes it."""
    width, height, _, kind = struct.unpack(">IIBB", png[16:26])
    channels = {2: 3, 6: 4}[kind]
    content, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            content += png[place + 8 : place + 8 + length]
        place += length + 12
    rows = np.frombuffer(zlib.decompress(content), np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height + 1, width * channels + channels), np.int64)  # above and left of all there is 0
    for number, (filtering, *_) in enumerate(rows, 1):
        above, line = pixels[number - 1], pixels[number]
        undo = _UNDO[int(filtering)]
        for at in range(channels, len(line)):
            near = undo(int(line[at - channels]), int(above[at]), int(above[at - channels]))
            line[at] = (int(rows[number - 1, 1 + at - channels]) + near) & 255
    return pixels[1:, channels:].reshape(height, width, channels)[:, :, :3].astype(np.uint8)


def _paeth(left: int, above: int, corner: int) -> int:
    return min((left, above, corner), key=lambda each: abs(left + above - corner - each))


_UNDO: Final[dict[int, Callable[[int, int, int], int]]] = {
    0: lambda left, above, corner: 0,
    1: lambda left, above, corner: left,
    2: lambda left, above, corner: above,
    3: lambda left, above, corner: (left + above) // 2,
    4: _paeth,
}


def packed(pixels: Pixels) -> bytes:
    """Return a PNG with a palette: the most frequent colours, and for each other one the nearest of them."""
    height, width, _ = pixels.shape
    colours, places, numbers = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = colours[np.argsort(-numbers, kind="stable")[:COLOURS]]
    distances = ((colours[:, None].astype(np.int64) - palette[None].astype(np.int64)) ** 2).sum(axis=2)
    indexes = distances.argmin(axis=1).astype(np.uint8)[places.reshape(height, width)]
    rows = np.concatenate([np.zeros((height, 1), np.uint8), indexes], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    shown = (
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(shown)


def take(browser: Browser, address: str, picture: Picture) -> None:
    """Take one picture, once the page follows the application."""
    size = {"width": picture.width, "height": picture.height}
    browser.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=picture.width < 600)
    scheme = {"name": "prefers-color-scheme", "value": picture.scheme}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    browser.open(address + picture.page)
    browser.wait_for("document.getElementById('live').textContent.includes('follow the application')")
    browser.evaluate(picture.script)
    png = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    path = IMAGES / f"ui-{picture.name}.png"
    path.write_bytes(packed(unpacked(png)))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory(prefix="penstock-screenshots-") as name, application(Path(name)) as address:
        threading.Event().wait(SECONDS)
        with Browser(Path(name) / "browser") as browser:
            for picture in PICTURES:
                take(browser, address, picture)


if __name__ == "__main__":
    main()
