"""The bytes of a waiting update."""

from __future__ import annotations

from penstock.state.api import RecordContext
from penstock.state.buffered_change import BufferedChange, pack_change, unpack_change


def test_an_update_is_laid_out_as_in_kafka() -> None:
    change = BufferedChange(b"p", b"p", None, RecordContext(1, (("h", None),), "t", 3, 2))
    data = pack_change(change)
    origin = "0000000000000001 0000000000000002 00000001 74 00000003 00000001 00000001 68 ffffffff"
    assert data == bytes.fromhex(f"{origin} 00000001 70 fffffffe ffffffff")
    assert unpack_change(data) == change
