"""Columns in the cases a random test seldom meets; `tests/property/test_columns.py` holds the rest."""

import subprocess
import sys
import textwrap
import zlib
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.columns import COLUMNS, SCHEMA, decode_columns
from trimtab.wire.compression import compress
from trimtab.wire.hosts import host_bytes
from trimtab.wire.messages import Storable, decode_messages, encode_stored

STORE_HOST = host_bytes("10.0.0.1:10911")
STORABLE = Storable(
    topic=b"orders",
    body=b"body",
    properties=b"TAGS\x01eu\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC",
    queue_id=3,
    born_timestamp=1_700_000_000_000,
    born_host=host_bytes("10.0.0.9:50000"),
)


def stored(queue_offset: int = 0, **changes: object) -> bytes:
    storable = msgspec.structs.replace(STORABLE, **changes)
    return encode_stored(storable, queue_offset, 100 * queue_offset, 1_700_000_000_001, STORE_HOST)


def pairs(count: int, *, doubled: bool) -> bytes:
    names = [f"name-with-a-long-beginning-{number}-and-end" for number in range(count)]
    return "\x02".join(f"{name}\x01{number}" for number, name in enumerate(names + names[:doubled])).encode()


def assert_equal_to_objects(body: bytes) -> pa.RecordBatch:
    batch = decode_columns(body)
    batch.validate(full=True)
    for row, message in zip(batch.to_pylist(), decode_messages(body), strict=True):
        assert row["properties"] == list(message.properties.items())
        assert (row["tag"], row["keys"]) == (message.tag, list(message.keys))
        assert (row["body"], row["message_id"]) == (message.body, message.message_id)
    return batch


def test_one_message_fills_every_column() -> None:
    (row,) = decode_columns(stored(7)).to_pylist()
    assert row == {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": 7,
        "physical_offset": 700,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "store_timestamp": datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC),
        "born_host": "10.0.0.9:50000",
        "store_host": "10.0.0.1:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"body",
        "tag": "eu",
        "keys": ["k1", "k2"],
        "properties": [("TAGS", "eu"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "ABC")],
        "message_id": "ABC",
        "offset_message_id": "0A00000100002A9F00000000000002BC",
        "body_crc": zlib.crc32(b"body") & 0x7FFFFFFF,
        "stored_size": len(stored(7)),
    }


@pytest.mark.parametrize("bodies", [b"", [], [b""], [b"", memoryview(b"")]])
def test_no_messages_are_no_rows_of_the_same_schema(bodies: bytes | list[bytes]) -> None:
    batch = decode_columns(bodies)
    assert batch.schema == SCHEMA
    assert batch.num_rows == 0


def test_filters_that_keep_nothing_leave_the_schema() -> None:
    for batch in (decode_columns(stored(), tags=frozenset()), decode_columns(stored(5), offsets=range(5))):
        assert batch.schema == SCHEMA
        assert batch.num_rows == 0


def test_a_message_without_properties_has_no_tag_no_keys_and_the_brokers_id() -> None:
    (row,) = decode_columns(stored(properties=b"")).to_pylist()
    assert (row["tag"], row["keys"], row["properties"]) == (None, [], [])
    assert row["message_id"] == row["offset_message_id"]


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("doubled", [True, False])
def test_a_property_named_twice_keeps_its_last_value(count: int, doubled: bool) -> None:
    body = (
        stored() + stored(properties=pairs(count, doubled=doubled)) + stored(properties=b"a\x011\x02a\x012")
    )
    assert_equal_to_objects(body)


def test_names_that_only_look_alike_are_told_apart() -> None:
    assert_equal_to_objects(stored(properties=b"same-begin-1-same-end\x01x\x02same-begin-2-same-end\x01y"))


def test_rows_with_text_that_is_not_utf8_do_not_spoil_their_neighbours() -> None:
    broken = stored(
        properties=b"TAGS\x01\xffeu\x02KEYS\x01\xed\xa0\x80 b\x02UNIQ_KEY\x01\xc3", topic=b"\xe2\x82"
    )
    batch = assert_equal_to_objects(
        stored(0) + broken + stored(1, properties="TAGS\x01größe".encode()) + broken
    )
    assert batch.column("tag").to_pylist() == ["eu", "\ufffdeu", "größe", "\ufffdeu"]
    assert batch.column("topic").to_pylist() == ["orders", "\ufffd", "orders", "\ufffd"]


def test_the_tag_is_compared_as_text_not_by_hash() -> None:
    # "Aa" and "BB" have one hash in Java.
    body = stored(0, properties=b"TAGS\x01Aa") + stored(1, properties=b"TAGS\x01BB")
    assert decode_columns(body, ["queue_offset"], tags=frozenset({"BB"})).to_pylist() == [{"queue_offset": 1}]


def test_filters_work_together_and_before_inflating() -> None:
    bomb = stored(1, body=b"no zlib", sys_flag=1)
    body = stored(0) + bomb + stored(2, properties=b"TAGS\x01us") + stored(3)
    batch = decode_columns(body, ["queue_offset", "body"], tags=frozenset({"eu"}), offsets=range(2, 9))
    assert batch.to_pylist() == [{"queue_offset": 3, "body": b"body"}]
    with pytest.raises(ProtocolError):
        decode_columns(body, ["body"])
    assert decode_columns(body, ["queue_id"]).num_rows == 4


def test_a_column_nobody_knows_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        decode_columns(stored(), ["colour"])


def test_inflated_bodies_are_limited_each_and_together() -> None:
    body = b"".join(stored(offset, body=compress(b"x" * 1000), sys_flag=0x301) for offset in range(3))
    assert (
        decode_columns(body, ["body"], inflated_total_bytes_max=3000).column("body").to_pylist()
        == [b"x" * 1000] * 3
    )
    with pytest.raises(ProtocolError, match="together"):
        decode_columns(body, ["body"], inflated_total_bytes_max=2999)
    with pytest.raises(ProtocolError, match="more than 999"):
        decode_columns(body, ["body"], inflated_bytes_max=999)


def test_every_number_has_its_column() -> None:
    names = [field.name for field in SCHEMA if pa.types.is_integer(field.type)]
    assert set(names) < set(COLUMNS)
    extreme = stored(
        -1, queue_id=-(1 << 31), flag=(1 << 31) - 1, prepared_transaction_offset=-(1 << 63), born_timestamp=0
    )
    (message,) = decode_messages(extreme)
    (row,) = decode_columns(extreme, names).to_pylist()
    assert row == {name: getattr(message, name) for name in names}


def test_without_numpy_and_pyarrow_the_error_says_what_to_install() -> None:
    program = """
        import sys
        sys.modules["{missing}"] = None
        try:
            import trimtab.wire.columns
        except Exception as exc:
            print(type(exc).__name__, exc)
    """
    for missing in ("numpy", "pyarrow"):
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program).format(missing=missing)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (
            run.stdout == 'MissingExtraError columns need numpy and pyarrow: pip install "trimtab[spark]"\n'
        )


def test_columns_do_not_load_pandas() -> None:
    """Arrow loads it, where it is installed, to look whether a numpy array is one of pandas' own: half a second for nothing."""
    code = (
        "import sys; from tests.unit.wire.test_columns import stored; from trimtab.wire.columns import decode_columns;"
        "batch = decode_columns(stored(), ('queue_offset', 'born_timestamp', 'body', 'tag'));"
        "print(batch.num_rows, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
