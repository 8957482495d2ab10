"""Messages, batches, properties, ids and signatures, compared with what the stock jars write and read."""

import random
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.apache.oracle import JavaOracle
from tests.interop.seeds import seed
from trimtab.errors import ProtocolError
from trimtab.wire.batch import BatchEntry, decode_batch, encode_batch
from trimtab.wire.compression import COMPRESSED_FLAG, TYPE_MASK, Compression, compress
from trimtab.wire.hashing import body_crc, java_hash
from trimtab.wire.ids import (
    Month,
    UniqueIds,
    born_ms_of,
    decode_offset_message_id,
    decode_unique_id,
    offset_message_id,
)
from trimtab.wire.messages import (
    MAGIC_V1,
    V6_FLAGS,
    Storable,
    StoredMessage,
    decode_messages,
    encode_stored,
)
from trimtab.wire.properties import decode_properties, encode_properties
from trimtab.wire.signing import sign, signed_content

SOURCE = Path(__file__).parent.parent / "apache" / "java" / "MessageOracle.java"
COUNT = 4_000
ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "America/St_Johns")
LETTERS = "abcXYZ019_-%|. =,;éß标签\u07ff\uffff😀\U0010ffff"


@pytest.fixture(params=["4.9.3", "5.5.0"], scope="module")
def oracle(request: pytest.FixtureRequest) -> JavaOracle:
    return JavaOracle(request.param, SOURCE)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Another sequence for every test, all from one seed."""
    return random.Random(f"{seed()} {request.node.name}")


def at_most_i32(chance: random.Random) -> int:
    return chance.choice([0, 1, -1, (1 << 31) - 1, -(1 << 31), chance.randrange(-(1 << 31), 1 << 31)])


def at_most_i64(chance: random.Random) -> int:
    return chance.choice([0, 1, -1, (1 << 63) - 1, -(1 << 63), chance.randrange(-(1 << 63), 1 << 63)])


def some_text(chance: random.Random, longest: int = 12) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randrange(1, longest)))


def some_properties(chance: random.Random) -> dict[str, str]:
    names = ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", some_text(chance), some_text(chance)]
    return {
        name: some_text(chance) + chance.choice(["", "\x01x"])
        for name in chance.sample(names, chance.randrange(6))
    }


def some_host(chance: random.Random) -> bytes:
    # Never an IPv4 address inside an IPv6 one: Java takes that for IPv4 when it reads, and for IPv6 by the flag.
    ip = b"\x20" + chance.randbytes(15) if chance.random() < 0.3 else chance.randbytes(4)
    return ip + chance.randrange(65536).to_bytes(4, "big")


def some_body(chance: random.Random) -> bytes:
    return chance.choice(
        [b"", chance.randbytes(chance.randrange(200)), b"again and " * chance.randrange(100)]
    )


def some_storable(chance: random.Random, compressions: list[int]) -> Storable:
    sys_flag = at_most_i32(chance) & ~(V6_FLAGS | COMPRESSED_FLAG | TYPE_MASK)
    body = some_body(chance)
    if body and chance.random() < 0.4:
        type_bits = chance.choice(compressions)
        kind = Compression(0 if type_bits == 0x300 else type_bits)
        body, sys_flag = compress(body, kind), sys_flag | COMPRESSED_FLAG | type_bits
    return Storable(
        topic=some_text(chance).encode(),
        body=body,
        properties=encode_properties(some_properties(chance)) + chance.choice([b"", b"\x02"]),
        queue_id=at_most_i32(chance),
        born_timestamp=at_most_i64(chance),
        born_host=some_host(chance),
        flag=at_most_i32(chance),
        sys_flag=sys_flag,
        reconsume_times=at_most_i32(chance),
        prepared_transaction_offset=at_most_i64(chance),
    )


def compressions_of(oracle: JavaOracle) -> list[int]:
    return [0x000, 0x300] if oracle.version.startswith("4") else [0x000, 0x100, 0x200, 0x300]


def word(data: bytes | str) -> str:
    return (data.encode() if isinstance(data, str) else data).hex() or "-"


def pairs(properties: dict[str, str], *, in_java_order: bool = False) -> str:
    items = list(properties.items())
    if in_java_order:
        items.sort(key=lambda item: item[0].encode("utf-16-be"))
    return ",".join(f"{word(name)}={word(value)}" for name, value in items) or "-"


def told(message: StoredMessage) -> str:
    """The same words that MessageOracle.decode uses."""
    parts = [
        message.stored_size, message.body_crc, message.queue_id, message.flag, message.queue_offset,
        message.physical_offset, message.sys_flag & ~1, message.born_timestamp, message.born_host_bytes.hex(),
        message.store_timestamp, message.store_host_bytes.hex(), message.reconsume_times,
        message.prepared_transaction_offset, word(message.body), word(message.topic), word(message.message_id), message.offset_message_id,
        pairs(message.properties, in_java_order=True), word(message.tag or ""),
    ]  # fmt: skip
    return " ".join(map(str, parts))


def assert_java_says(oracle: JavaOracle, mode: str, questions: list[str], expected: list[str]) -> None:
    answers = oracle.run(questions, args=[mode])
    assert len(answers) == len(expected)
    for question, answer, ours in zip(questions, answers, expected, strict=True):
        assert answer == ours, f"seed {seed()}: {oracle.version} {mode} {question}"


def test_java_reads_our_stored_messages(oracle: JavaOracle, chance: random.Random) -> None:
    encoded = [
        encode_stored(
            some_storable(chance, compressions_of(oracle)),
            at_most_i64(chance),
            at_most_i64(chance),
            at_most_i64(chance),
            some_host(chance),
        )
        for _ in range(COUNT)
    ]
    expected = [told(message) for data in encoded for message in decode_messages(data)]
    assert_java_says(oracle, "decode", [data.hex() for data in encoded], expected)


def test_java_reads_damaged_messages_as_we_do_where_we_take_them(
    oracle: JavaOracle, chance: random.Random
) -> None:
    taken: list[tuple[str, str]] = []
    while len(taken) < COUNT:
        storable = some_storable(chance, [0])
        data = bytearray(encode_stored(storable, 1, 2, 3, some_host(chance)))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            (message,) = decode_messages(bytes(data))
        except (ProtocolError, ValueError):
            continue
        ports = [
            int.from_bytes(host[-4:], "big") for host in (message.born_host_bytes, message.store_host_bytes)
        ]
        if message.magic == MAGIC_V1 and not message.sys_flag & COMPRESSED_FLAG and max(ports) < 65536:
            taken.append((data.hex(), told(message)))
    assert_java_says(oracle, "decode", [question for question, _ in taken], [answer for _, answer in taken])


def test_we_read_stored_messages_of_java(oracle: JavaOracle, chance: random.Random) -> None:
    questions: list[str] = []
    expected: list[tuple[str, bytes, dict[str, str]]] = []
    for _ in range(COUNT):
        storable = some_storable(chance, [0])
        store_host, properties, body = some_host(chance), some_properties(chance), some_body(chance)
        type_bits = chance.choice(compressions_of(oracle))
        sys_flag = storable.sys_flag & ~COMPRESSED_FLAG | chance.choice([0, COMPRESSED_FLAG | type_bits])
        sys_flag |= (0x10 if len(storable.born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
        offsets = at_most_i64(chance), at_most_i64(chance), at_most_i64(chance)
        parts = [
            storable.queue_id, storable.flag, offsets[0], offsets[1], sys_flag, storable.born_timestamp,
            storable.born_host.hex(), offsets[2], store_host.hex(), storable.reconsume_times,
            storable.prepared_transaction_offset, word(body), word(storable.topic), pairs(properties),
        ]  # fmt: skip
        questions.append(" ".join(map(str, parts)))
        expected.append((questions[-1], body, properties))
    for (question, body, properties), answer in zip(
        expected, oracle.run(questions, args=["encode"]), strict=True
    ):
        (message,) = decode_messages(bytes.fromhex(answer))
        again = [
            message.queue_id, message.flag, message.queue_offset, message.physical_offset, message.sys_flag,
            message.born_timestamp, message.born_host_bytes.hex(), message.store_timestamp,
            message.store_host_bytes.hex(), message.reconsume_times, message.prepared_transaction_offset,
            word(message.body), word(message.topic), pairs(message.properties),
        ]  # fmt: skip
        why = f"seed {seed()}: {oracle.version} {question}"
        assert " ".join(map(str, again)) == question, why
        assert (message.body, message.properties) == (body, properties), why
        if not message.sys_flag & COMPRESSED_FLAG:
            assert message.crc_matches, why
            assert encoded_again(message) == bytes.fromhex(answer), why


def encoded_again(message: StoredMessage) -> bytes:
    storable = Storable(
        topic=message.topic.encode(),
        body=message.stored_body,
        properties=message.properties_bytes,
        queue_id=message.queue_id,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    place = message.queue_offset, message.physical_offset, message.store_timestamp, message.store_host_bytes
    return encode_stored(storable, *place)


def test_properties_are_read_as_java_reads_them(oracle: JavaOracle, chance: random.Random) -> None:
    pieces = [b"\x01", b"\x02", b"a", b"TAGS", b" ", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xed\xa0", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xe0\x80", b"\xc0\x80", "é标😀".encode()]  # fmt: skip
    data = [b"".join(chance.choices(pieces, k=chance.randrange(12))) for _ in range(COUNT)]
    data += [b"a\x01" + chance.randbytes(chance.randrange(12)) for _ in range(COUNT)]
    expected = [pairs(decode_properties(item), in_java_order=True) for item in data]
    assert_java_says(oracle, "read-properties", [word(item) for item in data], expected)


def test_properties_are_written_as_java_writes_them(oracle: JavaOracle, chance: random.Random) -> None:
    properties = [some_properties(chance) for _ in range(COUNT)]
    last = b"" if oracle.version.startswith("4") else b"\x02"
    expected = [word(encode_properties(item) + last if item else b"") for item in properties]
    assert_java_says(oracle, "write-properties", [pairs(item) for item in properties], expected)


def some_batch(chance: random.Random) -> list[tuple[int, bytes, dict[str, str]]]:
    return [
        (at_most_i32(chance), some_body(chance), some_properties(chance))
        for _ in range(chance.randrange(1, 5))
    ]


def batch_words(batch: list[tuple[int, bytes, dict[str, str]]], *, in_java_order: bool = False) -> str:
    return " ".join(
        f"{flag};{word(body)};{pairs(properties, in_java_order=in_java_order)}"
        for flag, body, properties in batch
    )


def test_a_batch_is_written_as_java_writes_it(oracle: JavaOracle, chance: random.Random) -> None:
    batches = [some_batch(chance) for _ in range(COUNT)]
    last = b"" if oracle.version.startswith("4") else b"\x02"
    expected = [
        encode_batch(
            [
                BatchEntry(body, encode_properties(properties) + last if properties else b"", flag)
                for flag, body, properties in batch
            ]
        ).hex()
        for batch in batches
    ]
    assert_java_says(oracle, "encode-batch", [batch_words(batch) for batch in batches], expected)


def test_a_batch_is_read_as_java_reads_it(oracle: JavaOracle, chance: random.Random) -> None:
    encoded = [
        encode_batch(
            [
                BatchEntry(body, encode_properties(properties), flag)
                for flag, body, properties in some_batch(chance)
            ]
        )
        for _ in range(COUNT)
    ]
    expected = [
        batch_words(
            [(entry.flag, entry.body, decode_properties(entry.properties)) for entry in decode_batch(data)],
            in_java_order=True,
        )
        for data in encoded
    ]
    assert_java_says(oracle, "decode-batch", [data.hex() for data in encoded], expected)


def test_offset_message_ids_are_written_and_read_as_in_java(
    oracle: JavaOracle, chance: random.Random
) -> None:
    questions, expected = [], []
    for _ in range(COUNT):
        host, offset = some_host(chance), at_most_i64(chance)
        ours = offset_message_id(host, offset)
        parts = decode_offset_message_id(ours)
        questions.append(f"{host.hex()} {offset} {ours}")
        expected.append(f"{ours} {parts.store_host.hex()} {parts.physical_offset}")
    assert_java_says(oracle, "offset-id", questions, expected)


def month_in(zone: str) -> Month:
    def month(now_ms: int) -> tuple[int, int]:
        at = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone))
        first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (first + timedelta(days=32)).replace(day=1)
        return int(first.timestamp() * 1000), int(following.timestamp() * 1000)

    return month


@pytest.mark.parametrize("zone", ZONES)
def test_java_reads_our_unique_ids(oracle: JavaOracle, chance: random.Random, zone: str) -> None:
    month = month_in(zone)
    (clock,) = oracle.run(["now"], args=["write-unique-ids"])
    now_ms = int(clock.split()[0])
    this_month = month(now_ms)[0]
    last_month = month(this_month - 1)[0]
    expected: list[tuple[str, int, bytes, int]] = []
    for _ in range(COUNT // 4):
        ip, pid = some_host(chance)[:-4], chance.randrange(1 << 20)
        # Not the last minutes, which pass while we ask, and nothing of last month that by now may be this month's.
        born_ms = chance.choice(
            [
                chance.randrange(this_month, max(now_ms - 600_000, this_month + 1)),
                chance.randrange(last_month, this_month),
            ]
        )
        unique_id = UniqueIds(ip, pid, at_most_i32(chance), month).next(born_ms)
        nearly = born_ms_of(unique_id, now_ms, month)
        if abs(this_month + decode_unique_id(unique_id).since_ms - now_ms) > 600_000:
            expected.append((unique_id, nearly, ip, pid & 0xFFFF))
    answers = oracle.run(
        [item[0] for item in expected], args=["read-unique-ids"], jvm_args=[f"-Duser.timezone={zone}"]
    )
    for (unique_id, born_ms, ip, pid), answer in zip(expected, answers, strict=True):
        _, java_born_ms, java_ip, java_ip_text, java_pid = answer.split(" ")
        why = f"seed {seed()}: {oracle.version} in {zone} {unique_id}"
        assert (int(java_born_ms), java_ip, int(java_pid)) == (born_ms, ip.hex(), pid), why
        if len(ip) == 4:
            assert java_ip_text == ".".join(map(str, ip)), why


@pytest.mark.parametrize("zone", ZONES)
def test_we_read_unique_ids_of_java(oracle: JavaOracle, zone: str) -> None:
    month = month_in(zone)
    answers = oracle.run(["next"] * 500, args=["write-unique-ids"], jvm_args=[f"-Duser.timezone={zone}"])
    counters = []
    who = set()
    for answer in answers:
        before_ms, unique_id, after_ms = answer.split()
        born_ms = born_ms_of(unique_id, int(after_ms) + 1, month)
        assert int(before_ms) <= born_ms <= int(after_ms), f"{oracle.version} in {zone}: {answer}"
        parts = decode_unique_id(unique_id)
        counters.append(parts.counter)
        who.add((parts.ip, parts.pid, parts.loader_hash))
        ours = UniqueIds(parts.ip, parts.pid, parts.loader_hash, month)
        assert ours.next(born_ms)[:-4] == unique_id[:-4], f"{oracle.version} in {zone}: {answer}"
    assert counters == list(range(500))
    assert len(who) == 1


def test_hashes_equal_javas(oracle: JavaOracle, chance: random.Random) -> None:
    texts = [
        "".join(
            map(chr, chance.choices([*range(128), 0xD800, 0xDC00, 0xFFFF, 0x1F600], k=chance.randrange(300)))
        )
        for _ in range(COUNT)
    ]
    # Two lone halves that meet are a pair to Java and to UTF-16 alike.
    questions = [text.encode("utf-16-be", "surrogatepass") for text in texts]
    valid = [(text, question) for text, question in zip(texts, questions, strict=True) if decodes(question)]
    assert_java_says(
        oracle, "hash", [word(question) for _, question in valid], [str(java_hash(text)) for text, _ in valid]
    )


def decodes(utf16: bytes) -> bool:
    """Java reads a lone half as U+FFFD, so such texts cannot be asked this way."""
    try:
        utf16.decode("utf-16-be")
    except UnicodeDecodeError:
        return False
    return True


def test_checksums_equal_javas(oracle: JavaOracle, chance: random.Random) -> None:
    bodies = [some_body(chance) for _ in range(COUNT)]
    assert_java_says(oracle, "crc", [word(body) for body in bodies], [str(body_crc(body)) for body in bodies])


def test_signatures_equal_javas(oracle: JavaOracle, chance: random.Random) -> None:
    questions, expected = [], []
    for _ in range(COUNT):
        names = chance.sample(
            ["AccessKey", "SecurityToken", "Signature", "a", "b", "Z", "é", "\uff01", "😀"],
            chance.randrange(1, 9),
        )
        ext = {name: some_text(chance) for name in names}
        body, secret = some_body(chance), some_text(chance)
        questions.append(f"{pairs(ext)} {word(body)} {word(secret)}")
        expected.append(f"{word(signed_content(ext, body))} {sign(ext, body, secret_key=secret)}")
    assert_java_says(oracle, "sign", questions, expected)
