"""Compressed bodies. Bombs are in tests/property."""

import zlib

import lz4.frame
import pytest
import zstandard

from trimtab.errors import ProtocolError
from trimtab.wire.compression import Compression, compress, compression_of, inflate

BODY = b"to be or not to be " * 100


def test_zlib_begins_as_javas_does() -> None:
    assert compress(BODY)[:2] == b"\x78\x5e"


@pytest.mark.parametrize(
    ("sys_flag", "compression"),
    [
        (0x000, None),
        (0x700, None),
        (0x001, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x2FF, Compression.ZSTD),
        (-0x800 | 0x101, Compression.LZ4),
    ],
)
def test_the_type_is_read_from_sys_flag(sys_flag: int, compression: Compression | None) -> None:
    assert compression_of(sys_flag) is compression


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_a_type_nobody_knows_is_refused(sys_flag: int) -> None:
    with pytest.raises(ProtocolError, match="type"):
        compression_of(sys_flag)


@pytest.mark.parametrize("compression", Compression)
def test_the_type_is_written_into_sys_flag(compression: Compression) -> None:
    assert compression_of(compression.sys_flag) is compression


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(300_000)])
def test_a_body_comes_back_up_to_its_very_size(compression: Compression, body: bytes) -> None:
    assert inflate(compress(body, compression), compression, inflated_bytes_max=len(body)) == body


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("body", [b"x", BODY, bytes(300_000)])
def test_one_byte_too_many_is_refused(compression: Compression, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate(compress(body, compression), compression, inflated_bytes_max=len(body) - 1)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("body", [b"", BODY])
def test_two_streams_are_one_too_many(compression: Compression, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate(compress(body, compression) * 2, compression)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("data", [b"", b"\x00", b"not a stream at all"])
def test_what_is_no_stream_is_refused(compression: Compression, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate(data, compression)


def test_any_zlib_level_is_read() -> None:
    for level in range(10):
        assert inflate(zlib.compress(BODY, level)) == BODY


@pytest.mark.parametrize("block_size", [0, 4, 5, 6, 7])
@pytest.mark.parametrize("linked", [True, False])
def test_any_lz4_frame_is_read(block_size: int, linked: bool) -> None:
    frame = lz4.frame.compress(
        bytes(200_000) + BODY,
        block_size=block_size,
        block_linked=linked,
        content_checksum=True,
        store_size=linked,
    )
    assert inflate(frame, Compression.LZ4) == bytes(200_000) + BODY


def test_a_large_lz4_body_is_inflated_in_steps() -> None:
    body = bytes(3 << 20)
    assert inflate(lz4.frame.compress(body), Compression.LZ4) == body


@pytest.mark.parametrize("checksum", [True, False])
def test_a_zstd_frame_that_does_not_say_its_size_is_read(checksum: bool) -> None:
    packer = zstandard.ZstdCompressor(level=5, write_checksum=checksum).compressobj()
    frame = packer.compress(BODY) + packer.flush()
    assert zstandard.frame_content_size(frame) == -1
    assert inflate(frame, Compression.ZSTD) == BODY
    for end in range(len(frame)):
        with pytest.raises(ProtocolError):
            inflate(frame[:end], Compression.ZSTD)
    with pytest.raises(ProtocolError, match="behind"):
        inflate(frame + b"!", Compression.ZSTD)


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    packer = zstandard.ZstdCompressor(level=22).compressobj()
    with pytest.raises(ProtocolError):
        inflate(packer.compress(BODY) + packer.flush(), Compression.ZSTD)


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=False).compress(BODY))
    assert frame[4] >> 6 == 1, "two bytes hold the size"
    frame[5] -= 1
    with pytest.raises(ProtocolError):
        inflate(bytes(frame), Compression.ZSTD)
