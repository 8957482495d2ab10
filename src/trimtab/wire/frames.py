"""Cutting a byte stream into frames, and making frames.

A frame is: i32 bytes that follow · i8 serializer, u24 header length · header · body. Lengths are judged as soon as their
four bytes are in, before anything is kept for them, so a peer can make us hold at most one frame of the allowed size.
Any way of cutting the stream gives the same frames, and frames in front of a bad one are still delivered.
"""

import struct
from collections.abc import Iterator

import msgspec

from trimtab.errors import ProtocolError

FRAME_BYTES_MAX = 16 << 20
"""Java's frameMaxLength: the whole frame, its four length bytes included."""

HEADER_BYTES_MAX = 256 << 10
BODY_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES_MAX
"""Of a frame, whatever its header. Whoever gets a longer frame closes the connection."""
"""Properties may have 32,767 bytes, of which JSON makes six each if they are control characters."""

JSON_HEADER = 0
BINARY_HEADER = 1

_PIECE_BYTES_MIN = 16 << 10
"""A piece of a frame that is kept as it came."""

_LENGTHS = struct.Struct(">II")
_pack_lengths = _LENGTHS.pack
_unpack_lengths = _LENGTHS.unpack_from


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame as it came: the header still encoded, an absent body as empty bytes."""

    serializer: int
    header: bytes
    body: bytes


class FrameDecoder:
    """Bytes in, frames out. After a `ProtocolError` the stream is finished and every further call raises it again."""

    __slots__ = ("_error", "_frame_bytes_max", "_header_bytes_max", "_kept", "_needed", "_pieces")

    def __init__(
        self, *, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._pieces: list[bytes | bytearray] = []
        self._kept = 0
        self._needed = _LENGTHS.size
        self._error: ProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is kept."""
        return self._kept

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Every frame that these bytes complete. Exhaust the iterator before feeding again."""
        if self._error is not None:
            raise self._error
        at = 0
        if self._kept:
            at = self._fill_up(data)
            if self._kept < self._needed:
                return
            yield self._finished()
        end = len(data)
        self._needed = _LENGTHS.size
        length_max, header_bytes_max = self._frame_bytes_max - 4, self._header_bytes_max
        while end - at >= 8:
            length, mark = _unpack_lengths(data, at)
            header_length = mark & 0xFFFFFF
            if not header_length + 4 <= length <= length_max or header_length > header_bytes_max:
                self._judge(length, header_length)
            next_at = at + 4 + length
            if next_at > end:
                self._needed = 4 + length
                break
            body_at = at + 8 + header_length
            yield Frame(mark >> 24, data[at + 8 : body_at], data[body_at:next_at])
            at = next_at
        else:
            if end - at >= 4:
                self._judge(int.from_bytes(data[at : at + 4], "big"), header_length=0)
        if at < end:
            self._keep(data[at:])

    def _fill_up(self, data: bytes) -> int:
        """Takes what the frame at hand lacks, so that no byte behind it is moved once more; how much that was."""
        at = 0
        if self._kept < _LENGTHS.size:
            at = min(_LENGTHS.size - self._kept, len(data))
            begun = b"".join((*self._pieces, data[:at]))
            self._pieces, self._kept = [begun], len(begun)
            if len(begun) == _LENGTHS.size:
                length, mark = _unpack_lengths(begun)
                self._judge(length, mark & 0xFFFFFF)
                self._needed = 4 + length
            elif len(begun) >= 4:
                self._judge(int.from_bytes(begun[:4], "big"), header_length=0)
        piece = data[at : at + self._needed - self._kept]
        if piece:
            self._keep(piece)
        return at + len(piece)

    def _keep(self, piece: bytes) -> None:
        """Pieces are copied once, when the frame is whole. Small ones share a buffer: a peer that sends byte by byte must not cost an object for each."""
        self._kept += len(piece)
        pieces = self._pieces
        if len(piece) >= _PIECE_BYTES_MIN or not pieces:
            pieces.append(piece)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def _finished(self) -> Frame:
        pieces, self._pieces, self._kept = self._pieces, [], 0
        first = pieces[0]
        _, mark = _unpack_lengths(first)
        body_at = 8 + (mark & 0xFFFFFF)
        if body_at > len(first):
            first, *pieces = [b"".join(pieces)]
        else:
            del pieces[0]
        return Frame(mark >> 24, bytes(first[8:body_at]), b"".join((memoryview(first)[body_at:], *pieces)))

    def _judge(self, length: int, header_length: int) -> None:
        if not 4 <= length <= self._frame_bytes_max - 4:
            raise self._fail(f"frame length {length} outside 4..{self._frame_bytes_max - 4}")
        if header_length > length - 4:
            raise self._fail(f"header length {header_length} exceeds its frame of {length}")
        if header_length > self._header_bytes_max:
            raise self._fail(f"header length {header_length} exceeds {self._header_bytes_max}")

    def _fail(self, text: str) -> ProtocolError:
        self._pieces, self._kept = [], 0
        self._error = ProtocolError(text)
        return self._error


def encode_frame(header: bytes, body: bytes = b"", *, serializer: int = JSON_HEADER) -> bytes:
    """The bytes of one frame."""
    header_length = len(header)
    return _pack_lengths(4 + header_length + len(body), serializer << 24 | header_length) + header + body
