"""Stored messages, batches, properties, ids and compressed bodies: there and back, and under damage."""

import contextlib
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.examples import examples
from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.wire.batch import BatchEntry, decode_batch, encode_batch
from trimtab.wire.compression import COMPRESSED_FLAG, TYPE_MASK, Compression, compress, inflate
from trimtab.wire.ids import UniqueIds, decode_offset_message_id, decode_unique_id, offset_message_id
from trimtab.wire.messages import (
    V6_FLAGS,
    Storable,
    StorableTogether,
    StoredMessage,
    decode_messages,
    encode_stored,
    encode_stored_together,
)
from trimtab.wire.properties import decode_properties, encode_properties, find_property, join_properties

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
readable = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
)
property_maps = st.dictionaries(
    st.one_of(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT"]), readable), readable, max_size=8
)
# Separators, spaces and broken UTF-8 in every mixture, beside properties as they should be.
property_bytes = st.one_of(
    property_maps.map(encode_properties),
    st.lists(st.sampled_from([b"\x01", b"\x02", b" ", b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xff", b"\xed\xa0\x80", "é".encode()]), max_size=30).map(b"".join),
)  # fmt: skip
topics = st.one_of(
    st.sampled_from([b"TopicTest", b"%RETRY%group", b"", b"\xfftopic"]), st.binary(max_size=140)
)


@st.composite
def stored_messages(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=60))
    sys_flag = draw(i32) & ~(V6_FLAGS | COMPRESSED_FLAG | TYPE_MASK)
    if draw(st.booleans()):
        compression = draw(st.sampled_from(Compression))
        body, sys_flag = compress(body, compression), sys_flag | compression.sys_flag
    message = Storable(
        topic=draw(topics),
        body=body,
        properties=draw(property_bytes),
        queue_id=draw(i32),
        born_timestamp=draw(i64),
        born_host=draw(hosts),
        flag=draw(i32),
        sys_flag=sys_flag,
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
    )
    return encode_stored(message, draw(i64), draw(i64), draw(i64), draw(hosts))


def touch_everything(message: StoredMessage) -> None:
    for name in dir(type(message)):
        if not name.startswith("_") and name != "body":
            getattr(message, name)
    repr(message)


@given(topics, st.binary(max_size=200), property_bytes, st.tuples(hosts, hosts), st.data())
def test_every_field_of_a_stored_message_comes_back(
    topic: bytes, body: bytes, properties: bytes, both_hosts: tuple[bytes, bytes], data: st.DataObject
) -> None:
    born_host, store_host = both_hosts
    i32s = data.draw(st.tuples(i32, i32, i32, i32))
    i64s = data.draw(st.tuples(i64, i64, i64, i64, i64))
    queue_id, flag, sys_flag, reconsume_times = i32s
    queue_offset, physical_offset, born, stored, prepared = i64s
    sys_flag &= ~COMPRESSED_FLAG
    message = Storable(
        topic=topic, body=body, properties=properties, queue_id=queue_id, born_timestamp=born, born_host=born_host,
        flag=flag, sys_flag=sys_flag, reconsume_times=reconsume_times, prepared_transaction_offset=prepared,
    )  # fmt: skip
    encoded = encode_stored(message, queue_offset, physical_offset, stored, store_host)
    (view,) = decode_messages(encoded)
    assert (view.queue_id, view.flag, view.reconsume_times) == (queue_id, flag, reconsume_times)
    assert (view.queue_offset, view.physical_offset) == (queue_offset, physical_offset)
    assert (view.born_timestamp, view.store_timestamp) == (born, stored)
    assert view.prepared_transaction_offset == prepared
    assert (view.born_host_bytes, view.store_host_bytes) == (born_host, store_host)
    assert view.sys_flag & ~V6_FLAGS == sys_flag & ~V6_FLAGS
    assert (view.body, view.stored_body, view.properties_bytes) == (body, body, properties)
    assert view.properties == decode_properties(properties)
    assert view.crc_matches
    assert view.stored_bytes == encoded
    assert view.stored_size == len(encoded)


singles = st.tuples(i32, st.binary(max_size=90), property_bytes, i32, i64, i32)
equally_long = st.tuples(st.integers(0, 90), st.integers(0, 40)).map(
    lambda sizes: st.tuples(
        i32, st.binary(min_size=sizes[0], max_size=sizes[0]), st.binary(min_size=sizes[1], max_size=sizes[1]), i32, i64, i32
    )
)  # fmt: skip


@st.composite
def queues_of_singles(
    draw: st.DrawFn,
) -> list[tuple[int, list[tuple[int, bytes, bytes, int, int, int]]]]:
    kind = draw(st.one_of(st.just(singles), equally_long))
    return draw(st.lists(st.tuples(i32, st.lists(kind, min_size=1, max_size=3)), min_size=1, max_size=3))


@given(topics, st.tuples(hosts, hosts), queues_of_singles(), st.data())
def test_messages_that_came_together_are_laid_out_like_single_ones(
    topic: bytes,
    both_hosts: tuple[bytes, bytes],
    queues: list[tuple[int, list[tuple[int, bytes, bytes, int, int, int]]]],
    data: st.DataObject,
) -> None:
    born_host, store_host = both_hosts
    stored, physical_offset = data.draw(st.tuples(i64, st.integers(0, 1 << 62)))
    parts = [(queue_id, *single) for queue_id, several in queues for single in several]
    queue_offsets = data.draw(st.lists(i64, min_size=len(parts), max_size=len(parts)))
    _, flags, bodies, properties, sys_flags, born, reconsume_times = map(list, zip(*parts, strict=True))
    together = StorableTogether(
        topic, [(queue_id, len(several)) for queue_id, several in queues], born_host, bodies, properties, flags,
        sys_flags, born, reconsume_times,
    )  # fmt: skip
    records = encode_stored_together(together, queue_offsets, physical_offset, stored, store_host)
    for part, queue_offset, record in zip(parts, queue_offsets, records, strict=True):
        queue_id, flag, body, of_it, sys_flag, born_ms, times = part
        single = Storable(topic, body, of_it, queue_id, born_ms, born_host, flag, sys_flag, times)
        assert record == encode_stored(single, queue_offset, physical_offset, stored, store_host)
        physical_offset += len(record)


@given(st.lists(stored_messages(), max_size=5))
def test_messages_back_to_back_come_apart_again(messages: list[bytes]) -> None:
    body = b"".join(messages)
    assert [message.stored_bytes for message in decode_messages(body)] == messages
    assert [message.stored_bytes for message in decode_messages(memoryview(body))] == messages


@given(st.lists(stored_messages(), min_size=1, max_size=3), st.data())
def test_a_body_cut_anywhere_but_between_messages_is_refused(
    messages: list[bytes], data: st.DataObject
) -> None:
    body = b"".join(messages)
    cut = data.draw(st.integers(0, len(body) - 1))
    ends = {len(b"".join(messages[:count])) for count in range(len(messages))}
    if cut in ends:
        assert len(decode_messages(body[:cut])) < len(messages)
    else:
        with pytest.raises(ProtocolError):
            decode_messages(body[:cut])


@given(st.lists(stored_messages(), min_size=1, max_size=3), st.data())
def test_damage_ends_in_a_protocol_error_or_a_message_that_can_be_read(
    messages: list[bytes], data: st.DataObject
) -> None:
    body = bytearray(b"".join(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        views = decode_messages(bytes(body))
    except ProtocolError:
        return
    for view in views:
        touch_everything(view)
        try:
            _ = view.body
        except ProtocolError:
            assert view.sys_flag & COMPRESSED_FLAG


@given(st.binary(max_size=400))
def test_bytes_from_nowhere_end_in_a_protocol_error_or_a_valid_batch(data: bytes) -> None:
    for decode in (decode_messages, decode_batch):
        try:
            decode(data)
        except ProtocolError:
            continue


@given(st.lists(stored_messages(), min_size=1, max_size=2), st.sampled_from([0, 84]), i32)
def test_hostile_lengths_are_refused(messages: list[bytes], at: int, length: int) -> None:
    body = bytearray(b"".join(messages))
    before = bytes(body)
    body[at : at + 4] = length.to_bytes(4, "big", signed=True)
    if bytes(body) == before:
        return
    (view, *_) = decode_messages(before)
    if at == 84 and view.sys_flag & V6_FLAGS:
        return
    try:
        decode_messages(bytes(body))
    except ProtocolError:
        return
    # Another length may fit by chance, but then all of them fit.
    assert sum(view.stored_size for view in decode_messages(bytes(body))) == len(body)


entries = st.builds(BatchEntry, st.binary(max_size=60), property_bytes, i32)


@given(st.lists(entries, max_size=6))
def test_a_batch_comes_back(batch: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary(max_size=60), st.binary(max_size=40), i32, st.integers(1, 20), st.data())
def test_a_batch_of_equally_long_messages_comes_back_and_is_judged_like_any_other(
    body: bytes, properties: bytes, flag: int, count: int, data: st.DataObject
) -> None:
    entries = [BatchEntry(bytes(reversed(body)) if at % 2 else body, properties, flag) for at in range(count)]
    encoded = encode_batch(entries)
    assert decode_batch(encoded) == entries
    damaged = bytearray(encoded)
    damaged[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    # Behind an entry of another length they are split one by one.
    other = BatchEntry(body + b"!", properties)
    try:
        expected = decode_batch(encode_batch([other]) + damaged)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decode_batch(bytes(damaged))
    else:
        assert [other, *decode_batch(bytes(damaged))] == expected


@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_a_batch_cut_anywhere_but_between_entries_is_refused(
    batch: list[BatchEntry], data: st.DataObject
) -> None:
    encoded = encode_batch(batch)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    if cut in {len(encode_batch(batch[:count])) for count in range(len(batch))}:
        return
    with pytest.raises(ProtocolError):
        decode_batch(encoded[:cut])


@given(property_maps)
def test_properties_come_back(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert decode_properties(encoded + b"\x02") == properties


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=4))
def test_properties_come_back_or_are_refused(properties: dict[str, str]) -> None:
    try:
        encoded = encode_properties(properties)
    except InvalidMessageError:
        return
    assert decode_properties(encoded) == properties


@given(property_bytes, st.sampled_from(["TAGS", "KEYS", "a", "é"]))
def test_finding_one_property_equals_decoding_all(data: bytes, name: str) -> None:
    found = find_property(data, name.encode())
    value = decode_properties(data).get(name)
    assert (found is None) == (value is None)
    if found is not None:
        assert decode_properties(b"x\x01" + found) == {"x": value}


@given(property_bytes, property_bytes)
def test_joined_properties_are_those_of_both(first: bytes, second: bytes) -> None:
    assert decode_properties(join_properties(first, second)) == decode_properties(first) | decode_properties(
        second
    )


@given(hosts, i64)
def test_an_offset_message_id_comes_back(host: bytes, offset: int) -> None:
    assert decode_offset_message_id(offset_message_id(host, offset)) == (host, offset)


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    i32,
    i32,
    st.integers(0, 1 << 42),
)
def test_a_unique_id_says_where_it_comes_from(ip: bytes, pid: int, loader: int, now_ms: int) -> None:
    ids = UniqueIds(ip, pid, loader, lambda at_ms: (at_ms - at_ms % (31 * 86_400_000), at_ms + 1))
    parts = decode_unique_id(ids.next(now_ms))
    assert parts == (ip, pid & 0xFFFF, loader & 0xFFFFFFFF, now_ms % (31 * 86_400_000), 0)


@given(st.binary(max_size=2000), st.sampled_from(Compression), st.booleans())
def test_a_body_inflates_to_what_it_was(body: bytes, compression: Compression, repeat: bool) -> None:
    body *= 20 if repeat else 1
    packed = compress(body, compression)
    assert inflate(packed, compression, inflated_bytes_max=len(body)) == body
    if body:
        with pytest.raises(ProtocolError):
            inflate(packed, compression, inflated_bytes_max=len(body) - 1)


@given(st.binary(max_size=300), st.sampled_from(Compression), st.data())
def test_an_unfinished_stream_is_refused(body: bytes, compression: Compression, data: st.DataObject) -> None:
    packed = compress(body, compression)
    with pytest.raises(ProtocolError):
        inflate(packed[: data.draw(st.integers(0, len(packed) - 1))], compression)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=50), st.sampled_from(Compression))
def test_bytes_behind_a_stream_are_refused(body: bytes, behind: bytes, compression: Compression) -> None:
    with pytest.raises(ProtocolError):
        inflate(compress(body, compression) + behind, compression)


@given(st.binary(max_size=300), st.sampled_from(Compression), st.data())
def test_a_damaged_stream_ends_in_a_protocol_error_or_a_body(
    body: bytes, compression: Compression, data: st.DataObject
) -> None:
    packed = bytearray(compress(body, compression))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ProtocolError):
        assert len(inflate(bytes(packed), compression, inflated_bytes_max=1 << 16)) <= 1 << 16


@settings(max_examples=examples(300))
@given(st.binary(max_size=100), st.sampled_from(Compression))
def test_bytes_from_nowhere_end_in_a_protocol_error_or_a_body(data: bytes, compression: Compression) -> None:
    heads = {
        Compression.ZLIB: b"\x78\x5e",
        Compression.LZ4: b"\x04\x22\x4d\x18",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for hostile in (data, heads[compression] + data):
        try:
            inflate(hostile, compression)
        except ProtocolError:
            continue


BOMBS = """
    import resource, sys, zlib
    import lz4.frame, zstandard
    from trimtab.errors import ProtocolError
    from trimtab.wire.compression import Compression, inflate

    def zstd(declared):
        packer = zstandard.ZstdCompressor(level=3).compressobj(**({"size": 1 << 30} if declared else {}))
        return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)), packer.flush()])

    def lz4_frame():
        packer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
        return b"".join([packer.begin(), *(packer.compress(bytes(1 << 20)) for _ in range(256)), packer.flush()])

    def zlib_stream():
        packer = zlib.compressobj(9)
        return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)), packer.flush()])

    bombs = {
        "zlib": (Compression.ZLIB, zlib_stream), "lz4": (Compression.LZ4, lz4_frame),
        "zstd": (Compression.ZSTD, lambda: zstd(False)), "zstd-declared": (Compression.ZSTD, lambda: zstd(True)),
    }
    compression, build = bombs[sys.argv[1]]
    bomb = build()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        inflate(bomb, compression)
    except ProtocolError:
        print("grown", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("bomb", ["zlib", "lz4", "zstd", "zstd-declared"])
def test_a_decompression_bomb_is_refused_within_little_memory(bomb: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOMBS), bomb],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    grown_kib = int(run.stdout.removeprefix("grown"))
    assert grown_kib <= 20 << 10, f"{bomb}: {grown_kib} KiB more than before"


@given(st.binary(max_size=40))
def test_whatever_the_bytes_the_text_is_real(data: bytes) -> None:
    for name, value in decode_properties(data).items():
        assert name.encode()
        assert value.encode()
