"""Any byte stream, whole or cut anywhere, gives the same frames and the same end."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import ProtocolError
from trimtab.wire.codes import LanguageCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import Frame, FrameDecoder, encode_frame
from trimtab.wire.hot import decode_request

FRAME_MAX = 256

frames = st.builds(
    encode_frame, st.binary(max_size=40), st.binary(max_size=80), serializer=st.integers(0, 255)
)
bad_lengths = st.one_of(st.integers(0, 3), st.integers(FRAME_MAX - 3, 2**32 - 1)).map(
    lambda n: n.to_bytes(4, "big")
)
streams = st.lists(st.one_of(frames, frames, bad_lengths, st.binary(max_size=20)), max_size=8).map(b"".join)


def outcome(pieces: list[bytes]) -> tuple[list[Frame], str]:
    """The frames, and how it ended."""
    decoder = FrameDecoder(frame_bytes_max=FRAME_MAX, header_bytes_max=64)
    found = []
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                found.append(frame)  # noqa: PERF402 - what came before an error counts
    except ProtocolError as error:
        return found, str(error)
    assert decoder.pending_bytes < FRAME_MAX
    return found, f"{decoder.pending_bytes} bytes wait"


@given(streams, st.data())
def test_every_way_of_cutting_gives_the_same_frames(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    whole = outcome([stream])
    assert outcome(pieces) == whole
    assert outcome([stream[i : i + 1] for i in range(len(stream))]) == whole


@given(st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=100), st.integers(0, 255)), max_size=10))
def test_what_is_framed_comes_back(parts: list[tuple[bytes, bytes, int]]) -> None:
    stream = b"".join(encode_frame(header, body, serializer=kind) for header, body, kind in parts)
    assert list(FrameDecoder().feed(stream)) == [Frame(kind, header, body) for header, body, kind in parts]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
commands = st.builds(
    Command,
    code=st.integers(-0x7FFF, 0x7FFF),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    ext=st.dictionaries(texts, texts, max_size=8),
    body=st.binary(max_size=50),
    remark=st.none() | texts.filter(bool),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 0x7FFF),
    serializer=st.integers(0, 1),
)


@given(commands)
def test_what_is_commanded_comes_back(command: Command) -> None:
    (frame,) = FrameDecoder().feed(encode_command(command))
    assert decode_command(frame) == command
    general = decode_request(frame)
    assert general == command or general.header is not None  # type: ignore[union-attr]


@given(commands, st.data())
def test_a_damaged_header_is_a_command_or_a_protocol_error(command: Command, data: st.DataObject) -> None:
    (frame,) = FrameDecoder().feed(encode_command(command))
    header = bytearray(frame.header)
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_command, decode_request):
        try:
            assert decode(Frame(frame.serializer, bytes(header), b"")).opaque is not None
        except ProtocolError:
            continue


@given(st.integers(0, 2), st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_protocol_error(serializer: int, header: bytes) -> None:
    for decode in (decode_command, decode_request):
        try:
            assert decode(Frame(serializer, header, b"")).opaque is not None
        except ProtocolError:
            continue
