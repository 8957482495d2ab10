"""Compressed bodies, with an end to what they may inflate to.

The type stands in three bits of sysFlag beside the bit that says "compressed". Nothing a stream says about its own size is
believed: output stops at the caller's limit. A stream must be whole and fill its bytes exactly.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum

import lz4.frame
import zstandard

from trimtab.errors import ProtocolError

COMPRESSED_FLAG = 0x1
TYPE_MASK = 0x700
INFLATED_BYTES_MAX = 4 << 20
ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""What RFC 8878 asks every decoder to bear; a streaming decoder sets this much aside because the frame says so."""

_LEVEL = 5  # Java's default for all types (RFC 1950 head 78 5e)
_LZ4_STEP_BYTES_MIN = 64 << 10
_ZSTD_RLE_BLOCK = 0b010


class Compression(IntEnum):
    """Type bits of sysFlag. 4.9 writes none for zlib and reads no others, 5.x also writes 0x300 for it."""

    ZLIB = 0x000
    LZ4 = 0x100
    ZSTD = 0x200

    @property
    def sys_flag(self) -> int:
        """The bits to set in sysFlag for a body compressed this way."""
        return COMPRESSED_FLAG | self


_BY_TYPE_BITS = {
    0x000: Compression.ZLIB,
    0x100: Compression.LZ4,
    0x200: Compression.ZSTD,
    0x300: Compression.ZLIB,
}


def compression_of(sys_flag: int) -> Compression | None:
    """How a body with this sysFlag is compressed, or None."""
    if not sys_flag & COMPRESSED_FLAG:
        return None
    compression = _BY_TYPE_BITS.get(sys_flag & TYPE_MASK)
    if compression is None:
        raise ProtocolError(
            f"sysFlag {sys_flag:#x} names compression type {(sys_flag & TYPE_MASK) >> 8}; known are 0 to 3"
        )
    return compression


def compress(body: bytes, compression: Compression = Compression.ZLIB) -> bytes:
    """`body` as a 4.9 (zlib) or 5.x (all types) client sends it."""
    return _COMPRESSORS[compression](body)


def inflate(
    data: bytes, compression: Compression = Compression.ZLIB, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
) -> bytes:
    """The body again; `ProtocolError` for a damaged, unfinished or overlong stream, or one with something behind it."""
    body = _INFLATERS[compression](data, inflated_bytes_max)
    if len(body) > inflated_bytes_max:
        raise _too_long(compression, len(data), inflated_bytes_max)
    return body


def _inflate_zlib(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, limit + 1)
    except zlib.error as exc:
        raise ProtocolError(f"body is not a zlib stream: {exc}") from exc
    if len(body) <= limit:
        _require_whole("zlib", finished=inflater.eof, behind=inflater.unused_data)
    return body


def _inflate_lz4(data: bytes, limit: int) -> bytes:
    inflater = lz4.frame.LZ4FrameDecompressor()
    # The library sets a whole step aside before it starts, so a small body must not ask for the whole limit.
    step = max(_LZ4_STEP_BYTES_MIN, 4 * len(data))
    pieces: list[bytes] = []
    left = limit + 1
    try:
        while left > 0:
            piece = inflater.decompress(b"" if pieces else data, min(step, left))
            pieces.append(piece)
            left -= len(piece)
            if inflater.needs_input or not piece:
                break
    except RuntimeError as exc:
        raise ProtocolError(f"body is not an LZ4 frame: {exc}") from exc
    if left > 0:
        _require_whole("LZ4", finished=inflater.eof, behind=inflater.unused_data or b"")
    return b"".join(pieces)


def _inflate_zstd(data: bytes, limit: int) -> bytes:
    try:
        frame_bytes = _zstd_frame_bytes(data)
        # The library sets aside what the frame declares; without a declaration (-1) what we allow, which costs nothing until used.
        if zstandard.frame_content_size(data) > limit:
            raise _too_long(Compression.ZSTD, len(data), limit)
        inflater = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        body = inflater.decompress(data, max_output_size=limit + 1)
    except zstandard.ZstdError as exc:
        raise ProtocolError(f"body is not a zstd frame of at most {limit} bytes: {exc}") from exc
    _require_whole("zstd", finished=frame_bytes <= len(data), behind=data[frame_bytes:])
    return body


def _zstd_frame_bytes(data: bytes) -> int:
    """Where the first frame of `data` ends, by its block headers; behind `data` if it is cut off.

    The library itself overlooks what stands behind a frame of unknown size, and much else in a frame of no content.
    """
    if not data.startswith(zstandard.FRAME_HEADER):
        raise ProtocolError("body does not begin with a zstd frame")
    position = zstandard.frame_header_size(data)
    last = 0
    while not last and position < len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        last = block & 1
        position += 3 + (1 if block & 0b110 == _ZSTD_RLE_BLOCK else block >> 3)
    checksum_bytes = 4 * zstandard.get_frame_parameters(data).has_checksum
    return position + checksum_bytes if last else len(data) + 1


def _require_whole(name: str, *, finished: bool, behind: bytes) -> None:
    if not finished:
        raise ProtocolError(f"body is a {name} stream without its end")
    if behind:
        raise ProtocolError(f"{len(behind)} bytes stand behind the end of a {name} stream")


def _too_long(compression: Compression, data_bytes: int, limit: int) -> ProtocolError:
    return ProtocolError(
        f"{data_bytes} bytes of {compression.name} inflate to more than {limit} bytes; raise inflated_bytes_max if that is meant"
    )


def _compress_zlib(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _compress_lz4(body: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(body)
    return frame


def _compress_zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(body)


_COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.ZLIB: _compress_zlib,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_INFLATERS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.ZLIB: _inflate_zlib,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
