"""The properties of a message: `name 0x01 value 0x02 name 0x01 value`, UTF-8, at most 32,767 bytes.

Some writers end with 0x02 and some do not; readers take both, and ignore every pair whose name or value is empty. Both
separators are ASCII, so that splitting bytes and splitting text give the same pairs, whatever stands between them.
"""

import re
from collections.abc import Mapping

from trimtab.errors import InvalidMessageError

PROPERTIES_BYTES_MAX = 32_767
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
CLUSTER = "CLUSTER"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRANSACTION_ID = "__transactionId__"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SHARDING_KEY = "__SHARDINGKEY"
CRC32 = "__CRC32#"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

RESERVED = frozenset(
    f"""
    {KEYS} {TAGS} {WAIT} {DELAY} {UNIQ_KEY} {CLUSTER} {RETRY_TOPIC} {REAL_TOPIC} {REAL_QUEUE_ID}
    {TRANSACTION_PREPARED} {PRODUCER_GROUP} {TRANSACTION_PREPARED_QUEUE_OFFSET} {TRANSACTION_CHECK_TIMES} {TRANSACTION_ID}
    {CHECK_IMMUNITY_SECONDS} {ORIGIN_MESSAGE_ID} {RECONSUME_TIME} {MAX_RECONSUME_TIMES} {CONSUME_START_TIME} {MIN_OFFSET}
    {MAX_OFFSET} {REGION} {TRACE_SWITCH} {INSTANCE_ID} {CORRELATION_ID} {REPLY_TO_CLIENT} {TTL} {MESSAGE_TYPE}
    {ARRIVE_TIME} {PUSH_REPLY_TIME} {INNER_MULTI_DISPATCH} {INNER_MULTI_QUEUE_OFFSET} {SHARDING_KEY} {CRC32}
    {DLQ_ORIGIN_TOPIC} {DLQ_ORIGIN_MESSAGE_ID}
    BUYER_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG
    TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL POP_CK POP_CK_OFFSET 1ST_POP_TIME INNER_NUM INNER_BASE DUP_INFO EXTEND_UNIQ_INFO
    REDIRECT PROPERTY_FORWARD_QUEUE_ID TRACE_CONTEXT __BORNHOST BORN_TIMESTAMP
    """.split()
)
"""Names that clients and brokers use for themselves; a user's own property must not have one of them."""

_NAME_END = "\x01"
_PAIR_END = "\x02"
_SURROGATES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def decode_text(data: bytes) -> str:
    """UTF-8 as Java reads it: what is not UTF-8 becomes U+FFFD, and an encoded surrogate becomes one U+FFFD, not three."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATES.sub(_REPLACEMENT, data).decode(errors="replace")


def decode_properties(data: bytes) -> dict[str, str]:
    """Name to value. Of two pairs with one name the last counts."""
    properties = {}
    for pair in decode_text(data).split(_PAIR_END):
        name, _, value = pair.partition(_NAME_END)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of `properties`; `InvalidMessageError` where a reader would not get back what was written."""
    text = _PAIR_END.join([f"{name}{_NAME_END}{value}" for name, value in properties.items()])
    if text.count(_PAIR_END) >= max(len(properties), 1) or not all(
        map(_readable, properties, properties.values())
    ):
        raise InvalidMessageError(_complaint(properties))
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidMessageError(f"properties cannot be UTF-8: {exc}") from exc
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"properties take {len(data)} bytes, at most {PROPERTIES_BYTES_MAX} fit; move something into the body"
        )
    return data


def find_property(data: bytes, name: bytes) -> bytes | None:
    """The value that `decode_properties` would give for `name`, found without decoding the others."""
    pairs = b"\x02" + data
    mark = b"\x02" + name + b"\x01"
    at = pairs.rfind(mark)
    while at >= 0:
        start = at + len(mark)
        end = pairs.find(b"\x02", start)
        value = pairs[start:] if end < 0 else pairs[start:end]
        if value:
            return value
        at = pairs.rfind(mark, 0, at)
    return None


def join_properties(first: bytes, second: bytes) -> bytes:
    """Both strings as one, with the separator between them that `first` may or may not end with."""
    if not first or not second or first.endswith(b"\x02"):
        return first + second
    return first + b"\x02" + second


def split_keys(keys: str | None) -> tuple[str, ...]:
    """The single keys of a KEYS property."""
    return tuple(filter(None, keys.split(" "))) if keys else ()


def _readable(name: str, value: str) -> bool:
    return bool(name and value) and _NAME_END not in name


def _complaint(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if not name or _NAME_END in name or _PAIR_END in name:
            return f"property name {name!r} is empty or has a separator (0x01, 0x02) in it"
        if not value or _PAIR_END in value:
            return f"value {value!r} of property {name!r} is empty or has the separator 0x02 in it"
    raise AssertionError("called for properties without a fault")
