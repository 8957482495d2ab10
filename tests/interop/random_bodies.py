"""Random bodies, made from the annotations of their classes, and a comparison that knows Java's sets."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from trimtab.wire import bodies
from trimtab.wire.bodies import ConsumeType, MessageModel
from trimtab.wire.codes import LanguageCode

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

WORDS = (
    *(
        "T",
        "%RETRY%g",
        "broker-a",
        "1.1.1.1:10911",
        "a b",
        '"',
        "\\",
        "/",
        "\x00\x01\x1f",
        "\b\t\n\f\r",
        "\x7f\x85\x9f",
    ),
    *("\xa0é", "\u2028\u2029", "\ufeff", "中文", "😀", "{1:2}", ',{"a":1}:', "'", ""),
)

# 4.9 neither writes nor keeps these.
FIELDS_OF_5: frozenset[tuple[type, str]] = frozenset(
    {
        (bodies.DataVersion, "state_version"),
        (bodies.TopicConfig, "attributes"),
        (bodies.BrokerData, "zone_name"),
        (bodies.BrokerData, "enable_acting_master"),
        (bodies.TopicRouteData, "topic_queue_mapping_by_broker"),
        (bodies.HeartbeatData, "heartbeat_fingerprint"),
        (bodies.HeartbeatData, "without_sub"),
        (bodies.CheckClientRequestBody, "namespace"),
        (bodies.LockBatchRequestBody, "only_this_broker"),
        (bodies.UnlockBatchRequestBody, "only_this_broker"),
        (bodies.TopicStatsTable, "topic_put_tps"),
        (bodies.OffsetWrapper, "pull_offset"),
        (bodies.ConsumeStatsList, "total_inflight_diff"),
        (bodies.ConsumerRunningInfo, "mq_pop_table"),
        (bodies.ConsumerRunningInfo, "user_consumer_info"),
        (bodies.SubscriptionGroupConfig, "consume_message_orderly"),
        (bodies.SubscriptionGroupConfig, "group_retry_policy"),
        (bodies.SubscriptionGroupConfig, "group_sys_flag"),
        (bodies.SubscriptionGroupConfig, "consume_timeout_minute"),
        (bodies.SubscriptionGroupConfig, "subscription_data_set"),
        (bodies.SubscriptionGroupConfig, "attributes"),
        (bodies.SubscriptionGroupWrapper, "forbidden_table"),
        (bodies.ConsumerOffsets, "data_version"),
        (bodies.DelayOffsets, "data_version"),
        (bodies.TopicConfigAndMappingSerializeWrapper, "topic_queue_mapping_info_map"),
        (bodies.TopicConfigAndMappingSerializeWrapper, "topic_queue_mapping_detail_map"),
        (bodies.TopicConfigAndMappingSerializeWrapper, "mapping_data_version"),
    }
)
MEMBERS_OF_5 = frozenset(
    {ConsumeType.CONSUME_POP, MessageModel.LITE_SELECTIVE, LanguageCode.RUST, LanguageCode.NODE_JS}
)

WRITE_ONLY = frozenset({"min_time_stamp_str", "max_time_stamp_str", "consume_time_stamp_str"})
"""Java writes them from other fields and never reads them."""

SETS = frozenset(
    {
        *("tags_set", "code_set", "mq_set", "lock_ok_mq_set", "connection_set", "producer_data_set"),
        *("consumer_data_set", "subscription_data_set", "subscription_set", "topic_list", "group_list"),
        "cluster_addr_table",
    }
)


JAVA_NAMES: dict[type, str] = {
    bodies.ConsumerIdList: "GetConsumerListByGroupResponseBody",
    bodies.ConsumerOffsets: "ConsumerOffsetSerializeWrapper",
    bodies.DelayOffsets: "DelayOffsetSerializeWrapper",
    bodies.LocalOffsets: "OffsetSerializeWrapper",
    bodies.TopicConfigAndMapping: "TopicConfigAndQueueMapping",
}


def java_name(cls: type) -> str:
    return JAVA_NAMES.get(cls, cls.__name__)


def is_of_5(cls: type, field: str) -> bool:
    return any((each, field) in FIELDS_OF_5 for each in cls.__mro__)


_type_of = cache(inspect.type_info)  # to find out takes longer than to make a value


def _given(info: inspect.Type) -> inspect.Type:
    """The type without None."""
    if not isinstance(info, inspect.UnionType):
        return info
    (only,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
    return only


class BodyMaker:
    """Random values of any body; `size` is the largest number of elements in a collection."""

    def __init__(self, rng: random.Random, *, size: int, later: bool) -> None:
        self._rng = rng
        self._size = size
        self._later = later

    def make(self, cls: type) -> Any:
        return self._value(_type_of(cls))

    def _value(self, info: inspect.Type) -> Any:
        rng = self._rng
        match info:
            case inspect.UnionType():
                return None if rng.random() < 0.25 else self._value(_given(info))
            case inspect.StrType():
                return self._text()
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.FloatType():
                return round(rng.gauss(0, 1e6)) / 64
            case inspect.IntType():
                low, high = (
                    (-(2**31), 2**31 - 1) if info.ge is None or info.le is None else (info.ge, info.le)
                )
                return rng.choice(
                    (low, high, rng.randint(int(low), int(high)), rng.randrange(32), rng.randrange(32))
                )
            case inspect.EnumType():
                return rng.choice([each for each in info.cls if self._later or each not in MEMBERS_OF_5])
            case inspect.VarTupleType():
                items = [self._value(info.item_type) for _ in range(rng.randint(0, self._size))]
                return tuple({repr(comparable(item)): item for item in items}.values())
            case inspect.DictType():
                return {
                    self._key(info.key_type): self._value(info.value_type)
                    for _ in range(rng.randint(0, self._size))
                }
            case inspect.StructType():
                return info.cls(**dict(self._fields(info)))
        raise TypeError(info)

    def _fields(self, info: inspect.StructType) -> Iterator[tuple[str, Any]]:
        for field in info.fields:
            if field.name in WRITE_ONLY:
                continue
            of_5 = is_of_5(info.cls, field.name)
            if of_5 and not self._later:
                continue
            # What has a default of its own in Java cannot be told to be null.
            may_be_none = field.default is None and not of_5
            yield field.name, self._value(field.type if may_be_none else _given(field.type))

    def _key(self, info: inspect.Type) -> Any:
        # fastjson2 2.0.59 refuses a key that has both an escape and a character outside the Basic Multilingual Plane.
        key = self._value(info)
        return key.replace("😀", "") if self._later and isinstance(key, str) else key

    def _text(self) -> str:
        rng = self._rng
        words = [rng.choice(WORDS if rng.random() < 0.3 else WORDS[:5]) for _ in range(rng.randint(1, 3))]
        return "".join(words) + str(rng.randrange(10**9))


def comparable(value: Any, name: str = "") -> Any:
    """The value as plain data, without the order of maps and of what is a set in Java."""
    if isinstance(value, msgspec.Struct):
        return {
            field: comparable(getattr(value, field), field)
            for field in value.__struct_fields__
            if field not in WRITE_ONLY
        }
    if isinstance(value, dict):
        return sorted([(comparable(key), comparable(each, name)) for key, each in value.items()], key=repr)
    if isinstance(value, tuple):
        items = [comparable(each) for each in value]
        return sorted(items, key=repr) if name in SETS else items
    return value


def has_object_keys(cls: type) -> bool:
    return _has_object_keys(_type_of(cls))


def _has_object_keys(info: inspect.Type) -> bool:
    match info:
        case inspect.UnionType():
            return any(map(_has_object_keys, info.types))
        case inspect.VarTupleType():
            return _has_object_keys(info.item_type)
        case inspect.DictType():
            return isinstance(info.key_type, inspect.StructType) or _has_object_keys(info.value_type)
        case inspect.StructType():
            return any(_has_object_keys(field.type) for field in info.fields)
        case _:
            return False


def nullable_fields(cls: type) -> set[str]:
    """`Class.field` in Java's words for all that may be null inside a body of this class."""
    found: set[str] = set()
    _collect(_type_of(cls), found)
    return found


def _collect(info: inspect.Type, found: set[str]) -> None:
    match info:
        case inspect.UnionType():
            for each in info.types:
                _collect(each, found)
        case inspect.VarTupleType():
            _collect(info.item_type, found)
        case inspect.DictType():
            _collect(info.key_type, found)
            _collect(info.value_type, found)
        case inspect.StructType():
            for field in info.fields:
                if field.default is None and not is_of_5(info.cls, field.name):
                    found.update(f"{java_name(each)}.{field.encode_name}" for each in info.cls.__mro__)
                _collect(field.type, found)
