from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.store.shared import HOST, NOW_MS, message
from trimtab.broker.store.frames import HEAD_BYTES, read_frame, read_head, seal
from trimtab.wire.messages import encode_stored


def frame_of(*contents: bytes, offset: int = 0, previous: int = 0, durable: int = 0, salt: int = 7) -> bytes:
    payload, checksums = b"", []
    for number, body in enumerate(contents):
        place = offset + HEAD_BYTES + len(payload)
        record = encode_stored(message(body), number, place, NOW_MS, HOST)
        payload += record
        checksums.append(crc32(record))
    head, table, _ = seal(
        checksums, payload_bytes=len(payload), offset=offset, previous=previous, durable=durable, salt=salt
    )
    return head + payload + table


def test_a_frame_is_read_as_it_was_written() -> None:
    raw = b"before" + frame_of(b"a", b"", b"ccc", offset=1000, previous=5, durable=900)
    head = read_head(raw, 6, 1000)
    assert head is not None
    assert (head.records, head.offset, head.previous, head.durable) == (3, 1000, 5, 900)
    frame = read_frame(raw, 6, head, 7)
    assert frame is not None
    assert [one.body for one in frame.messages] == [b"a", b"", b"ccc"]
    assert frame.end == 1000 + len(raw) - 6


@given(st.data())
def test_every_changed_bit_is_noticed(data: st.DataObject) -> None:
    raw = bytearray(frame_of(b"a" * 20, b"bb", offset=64))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    head = read_head(bytes(raw), 0, 64)
    whole = head is not None and head.total_bytes <= len(raw)
    assert head is None or not whole or read_frame(bytes(raw), 0, head, 7) is None


@pytest.mark.parametrize(("offset", "salt"), [(63, 7), (64, 8)])
def test_a_frame_fits_one_place_of_one_store(offset: int, salt: int) -> None:
    raw = frame_of(b"a", offset=64, salt=7)
    head = read_head(raw, 0, offset)
    assert head is None or read_frame(raw, 0, head, salt) is None


def test_a_cut_head_is_no_head() -> None:
    assert read_head(frame_of(b"a")[: HEAD_BYTES - 1], 0, 0) is None
    assert read_head(b"", 0, 0) is None
    assert read_head(bytes(HEAD_BYTES), 0, 0) is None
