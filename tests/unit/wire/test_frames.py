import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.frames import FRAME_BYTES_MAX, HEADER_BYTES_MAX, Frame, FrameDecoder, encode_frame


def frames_of(*pieces: bytes) -> list[Frame]:
    decoder = FrameDecoder()
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def test_a_frame_is_length_mark_header_body() -> None:
    assert encode_frame(b"HEAD", b"body", serializer=1) == bytes.fromhex("0000000c 01000004") + b"HEADbody"


def test_an_absent_body_is_empty() -> None:
    assert frames_of(encode_frame(b"H")) == [Frame(0, b"H", b"")]


def test_frames_before_a_bad_one_are_delivered() -> None:
    decoder = FrameDecoder()
    stream = decoder.feed(encode_frame(b"a") + encode_frame(b"b") + b"\xff\xff\xff\xff")
    assert [next(stream).header, next(stream).header] == [b"a", b"b"]
    with pytest.raises(ProtocolError, match="4294967295"):
        next(stream)


def test_after_an_error_the_stream_is_finished() -> None:
    decoder = FrameDecoder()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="frame length 3"):
            list(decoder.feed(b"\0\0\0\3"))
    assert decoder.pending_bytes == 0


def test_a_length_is_judged_when_its_four_bytes_are_in() -> None:
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError, match="frame length"):
        list(decoder.feed(FRAME_BYTES_MAX.to_bytes(4, "big")))


def test_the_largest_frame_counts_its_own_length_bytes() -> None:
    largest = encode_frame(b"", bytes(FRAME_BYTES_MAX - 8))
    assert len(largest) == FRAME_BYTES_MAX
    assert len(frames_of(largest)) == 1


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(ProtocolError, match="exceeds its frame"):
        frames_of(bytes.fromhex("00000005 00000002 00"))


def test_a_header_over_the_limit_is_refused_before_it_arrives() -> None:
    over = HEADER_BYTES_MAX + 1
    with pytest.raises(ProtocolError, match="header length"):
        frames_of((4 + over).to_bytes(4, "big") + over.to_bytes(4, "big"))


def test_an_unfinished_frame_is_kept_and_no_more() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(b"head", b"body")
    assert list(decoder.feed(frame[:7])) == []
    assert decoder.pending_bytes == 7
    assert list(decoder.feed(frame[7:] + frame)) == [Frame(0, b"head", b"body")] * 2
    assert decoder.pending_bytes == 0
