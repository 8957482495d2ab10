"""Do the properties find anything? Each is given something that is wrong in a way that has been seen, and must complain."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trimtab.errors import ProtocolError
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.properties import decode_properties, encode_properties

CANARIES = settings(
    max_examples=2_000,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def frames_in(pieces: list[bytes]) -> list[bytes]:
    decoder = FrameDecoder()
    return [frame.body for piece in pieces for frame in decoder.feed(piece)]


def forgets_a_length_that_is_cut(pieces: list[bytes]) -> list[bytes]:
    """A decoder that drops what is left when a read ends within the four bytes of a length."""
    decoder, found = FrameDecoder(), []
    for piece in pieces:
        found += [frame.body for frame in decoder.feed(piece)]
        if 0 < decoder.pending_bytes < 4:
            decoder = FrameDecoder()
    return found


def check_any_cut(cut_frames: Callable[[list[bytes]], list[bytes]]) -> None:
    @CANARIES
    @given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.randoms(use_true_random=False))
    def same_frames_however_cut(bodies: list[bytes], chance: random.Random) -> None:
        stream = b"".join(
            encode_command(Command(code=10, opaque=number, body=body)) for number, body in enumerate(bodies)
        )
        cuts = sorted({0, len(stream), *(chance.randrange(len(stream)) for _ in range(3))})
        pieces = [stream[begin:end] for begin, end in pairwise(cuts)]
        try:
            found = cut_frames(pieces)
        except ProtocolError as error:
            raise AssertionError(str(error)) from error
        assert found == bodies

    same_frames_however_cut()


def test_a_sound_decoder_passes() -> None:
    check_any_cut(frames_in)


def test_a_decoder_that_forgets_a_cut_length_is_found_out() -> None:
    with pytest.raises(AssertionError):
        check_any_cut(forgets_a_length_that_is_cut)


TEXT = st.text(
    alphabet=st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1
)


def check_round_trip(encode: Callable[[dict[str, str]], bytes]) -> None:
    @CANARIES
    @given(st.dictionaries(TEXT, TEXT, max_size=4))
    def properties_come_back(properties: dict[str, str]) -> None:
        assert decode_properties(encode(properties)) == properties

    properties_come_back()


def test_sound_properties_pass() -> None:
    check_round_trip(encode_properties)


def test_properties_that_lose_what_is_not_ascii_are_found_out() -> None:
    def ascii_only(properties: dict[str, str]) -> bytes:
        return encode_properties(properties).decode().encode("ascii", errors="replace")

    with pytest.raises(AssertionError):
        check_round_trip(ascii_only)
