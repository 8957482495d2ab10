"""Messages as they leave: what was laid out once for many of them is what each would have got alone."""

from collections.abc import Sequence

import pytest

from trimtab.client.identity import unique_ids
from trimtab.client.producer_packing import KINDS_MAX, Packer
from trimtab.client.producer_properties import properties_of, properties_of_each
from trimtab.errors import InvalidMessageError, SettingsError
from trimtab.io.chance import seeded_chance
from trimtab.io.clock import SystemClock
from trimtab.model import Message
from trimtab.settings import Sending
from trimtab.wire.batch import BATCHED_PROPERTIES_BYTES_MAX, decode_batch
from trimtab.wire.frames import BODY_BYTES_MAX

PLAIN = [
    Message("T", b"x"),
    Message("T", b"x", tag="A"),
    Message("T", b"x", tag="Ä"),
    Message("T", b"x", tag="A"),
]
ODD = Message("T", b"x", tag="A", keys=("k1", "k2"), properties={"own": "value"})


@pytest.mark.parametrize("messages", [PLAIN, [*PLAIN, ODD], [ODD], []])
@pytest.mark.parametrize("extra", ["", "\x02INSTANCE_ID\x01ns"])
def test_the_properties_of_a_batch_are_those_of_each_message(messages: list[Message], extra: str) -> None:
    ids = [f"ID{number}" for number in range(len(messages))]
    assert properties_of_each(messages, ids, extra) == [
        properties_of(message, unique_id, extra) for message, unique_id in zip(messages, ids, strict=True)
    ]


@pytest.mark.parametrize("tag", ["", " ", "a\x01b", "a\x02b", "\ud800", "x" * 32_768])
def test_a_bad_tag_in_a_batch_is_refused(tag: str) -> None:
    with pytest.raises(InvalidMessageError):
        properties_of_each([Message("T", b"x", tag="good"), Message("T", b"x", tag=tag)], ["ID0", "ID1"])


def packer(namespace: str | None = None, message_bytes_max: int = 4 << 20) -> Packer:
    clock = SystemClock()
    return Packer(
        Sending(message_bytes_max=message_bytes_max), namespace, clock, unique_ids(clock, seeded_chance())
    )


@pytest.mark.parametrize("namespace", [None, "ns"])
def test_a_second_message_of_a_kind_is_packed_like_the_first(namespace: str | None) -> None:
    pack = packer(namespace).pack
    extra = "" if namespace is None else "\x02INSTANCE_ID\x01ns"
    for message in [*PLAIN, ODD, Message("%RETRY%g", b"x")] * 2:
        parcel = pack(message)
        assert parcel.properties == properties_of(message, parcel.unique_id, extra)
        assert parcel.topic == (message.topic if namespace is None else parcel.topic)
        assert parcel.is_batchable == (message.topic == "T")
        assert (parcel.body, parcel.flag, parcel.message) == (message.body, message.flag, message)


def test_kinds_of_messages_are_told_apart() -> None:
    pack = packer().pack
    assert pack(Message("T", b"x", tag="A")).topic == pack(Message("T", b"y", tag="B")).topic == "T"
    assert pack(Message("U", b"x", tag="A")).topic == "U"
    assert b"TAGS\x01B" in pack(Message("T", b"x", tag="B")).properties
    assert b"TAGS" not in pack(Message("T", b"x")).properties


def test_more_kinds_than_are_remembered_are_packed_all_the_same() -> None:
    pack = packer().pack
    for number in [*range(KINDS_MAX + 2), 0]:
        assert pack(Message("T", b"x", tag=f"t{number}")).properties.endswith(b"TAGS\x01t%d" % number)


@pytest.mark.parametrize("tag", [["unhashable"], 5, "", "\x01", "x" * 32_768])
def test_a_bad_tag_is_refused_however_often(tag: str) -> None:
    pack = packer().pack
    for _ in range(2):
        with pytest.raises(InvalidMessageError):
            pack(Message("T", b"x", tag=tag))


def stored_bytes(batch: tuple[Message, ...], pieces: Sequence[bytes]) -> int:
    """What the messages take where Apache's brokers store them; it is this that those of 4.9 compare with their maxMessageSize."""
    cluster = b"\x02CLUSTER\x01DefaultCluster"
    entries = decode_batch(b"".join(pieces))
    return sum(
        91 + len(message.topic) + len(entry.body) + len(entry.properties) + len(cluster)
        for message, entry in zip(batch, entries, strict=True)
    )


def test_an_explicit_batch_knows_its_length_whole_and_split() -> None:
    messages = [Message("T", bytes(100 + number), tag="A", flag=number) for number in range(20)]
    (whole,) = packer().pack_batch(messages, split=False)
    parts = packer(message_bytes_max=1_000).pack_batch(messages, split=True)
    assert len(parts) > 2
    assert all(stored_bytes(parcel.batch, parcel.pieces) <= 1_000 for parcel in parts)
    for parcel in [whole, *parts]:
        batch = b"".join(parcel.pieces)
        assert parcel.body_bytes == len(batch)
        assert [entry.body for entry in decode_batch(batch)] == [message.body for message in parcel.batch]
        assert [entry.flag for entry in decode_batch(batch)] == [message.flag for message in parcel.batch]
    assert [message for parcel in parts for message in parcel.batch] == messages
    assert all(parcel.body_bytes <= 1_000 for parcel in parts)


def with_properties_of(size: int) -> Message:
    """A message whose properties take so many bytes."""
    short = packer().pack(Message("T", b"x", properties={"own": "v"}))
    return Message("T", b"x", properties={"own": "v" * (size - len(short.properties) + 1)})


def test_properties_that_leave_brokers_no_room_for_theirs_travel_alone() -> None:
    pack = packer().pack
    for size, is_batchable in (
        (BATCHED_PROPERTIES_BYTES_MAX, True),
        (BATCHED_PROPERTIES_BYTES_MAX + 1, False),
    ):
        parcel = pack(with_properties_of(size))
        assert (len(parcel.properties), parcel.is_batchable) == (size, is_batchable)


@pytest.mark.parametrize("split", [True, False])
def test_nor_do_they_go_in_an_explicit_batch(split: bool) -> None:
    fitting, longer = (with_properties_of(BATCHED_PROPERTIES_BYTES_MAX + more) for more in (0, 1))
    packer().pack_batch([fitting, ODD], split=split)
    with pytest.raises(InvalidMessageError, match="brokers add theirs; send it alone"):
        packer().pack_batch([ODD, longer], split=split)


def test_a_body_that_fits_no_frame_is_refused_unless_it_is_compressed() -> None:
    body = bytes(BODY_BYTES_MAX + 1)
    clock = SystemClock()
    ids = unique_ids(clock, seeded_chance())
    compressing = Sending(message_bytes_max=1 << 30)
    assert Packer(compressing, None, clock, ids).pack(Message("T", body)).body_bytes < len(body)
    for plain in (
        Sending(message_bytes_max=1 << 30, compression="none"),
        Sending(message_bytes_max=1 << 30, compress_from_bytes=1 << 30),
    ):
        pack = Packer(plain, None, clock, ids).pack
        assert pack(Message("T", body[1:])).body_bytes == BODY_BYTES_MAX
        with pytest.raises(InvalidMessageError, match="fit a frame"):
            pack(Message("T", body))


def test_batches_that_fit_no_frame_cannot_be_asked_for() -> None:
    with pytest.raises(SettingsError, match="fits no frame"):
        Sending(batch_bytes_max=BODY_BYTES_MAX + 1)
