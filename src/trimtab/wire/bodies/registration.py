"""How a broker registers with a name server: plain JSON, or a denser form inside one zlib stream.

The dense form is: DataVersion JSON, the number of topics, one line of text per topic, the filter servers' JSON, and from 5.0
on the number of static-topic mappings and the JSON of each. Numbers are i32; every text has its length before it. It has no
room for `order` and `topicSysFlag`, and for `attributes` only as a sixth word that 4.9 cannot read.
"""

import re
import zlib
from typing import TypeVar

from msgspec import field

from trimtab.errors import ProtocolError
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.enums import TopicFilterType
from trimtab.wire.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)
from trimtab.wire.codes import Version
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_as, encode_body

INFLATED_BYTES_MAX = 16 << 20
ENTRIES_MAX = 1 << 17
"""Topics, and mappings, in one registration: 16 KiB of zlib could hold millions."""

_T = TypeVar("_T")
_BEST_COMPRESSION = 9
_I32 = re.compile(r"[-+]?[0-9]{1,10}", re.ASCII)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, frozen=True, kw_only=True):
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    mapping_data_version: DataVersion | None = None


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: tuple[str, ...] = ()


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool, version: int) -> bytes:
    """The body of REGISTER_BROKER; `version` is the one in the same request's header."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    parts = [_sized(encode_body(wrapper.data_version)), _i32(len(wrapper.topic_config_table))]
    parts += [_sized(_topic_line(topic)) for topic in wrapper.topic_config_table.values()]
    parts.append(_sized(encode_as(tuple[str, ...], body.filter_server_list)))
    if version >= Version.V5_0_0:
        mappings = wrapper.topic_queue_mapping_info_map or {}
        parts.append(_i32(len(mappings)))
        parts += [_sized(encode_body(mapping)) for mapping in mappings.values()]
    return zlib.compress(b"".join(parts), _BEST_COMPRESSION)


def decode_register_body(data: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
    """What a broker of this version registers. As in Java, bytes after the last known part are ignored."""
    if not compressed:
        return decode_body(RegisterBrokerBody, data)
    source = _Dense(_inflated(data))
    data_version = source.json(DataVersion)
    topics: dict[str, TopicConfig] = {}
    for _ in range(source.count("topics")):
        topic = _topic_from_line(source.text())
        if topic.topic_name in topics:
            raise ProtocolError(f"topic {topic.topic_name!r} is registered twice in one body")
        topics[topic.topic_name] = topic
    filter_servers = source.json(tuple[str, ...])
    mappings: dict[str, TopicQueueMappingInfo] | None = None
    if version >= Version.V5_0_0:
        found = [source.json(TopicQueueMappingInfo) for _ in range(source.count("mappings"))]
        mappings = {mapping.topic: mapping for mapping in found if mapping.topic is not None}
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=filter_servers)


def _i32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _sized(data: bytes) -> bytes:
    return _i32(len(data)) + data


def _topic_line(topic: TopicConfig) -> bytes:
    filter_type = topic.topic_filter_type.name if topic.topic_filter_type else "null"
    line = f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {filter_type}".encode()
    return line if topic.attributes is None else line + b" " + encode_as(dict[str, str], topic.attributes)


def _topic_from_line(line: str) -> TopicConfig:
    name, *words = line.split(" ")
    if len(words) < 4 or words[3] not in TopicFilterType.__members__:
        raise ProtocolError(f"a topic must be 'name reads writes perm filter-type': {line[:200]!r}")
    read_queue_nums, write_queue_nums, perm = (_integer(word) for word in words[:3])
    return TopicConfig(
        topic_name=name,
        read_queue_nums=read_queue_nums,
        write_queue_nums=write_queue_nums,
        perm=perm,
        topic_filter_type=TopicFilterType[words[3]],
        attributes=_attributes(words[4]) if len(words) > 4 and words[4] else None,
    )


def _attributes(word: str) -> dict[str, str]:
    try:
        return decode_body(dict[str, str], word.encode())
    except ProtocolError:
        return {}  # a space inside cuts the JSON short; Java goes on without


def _integer(word: str) -> int:
    if not _I32.fullmatch(word) or not -(2**31) <= int(word) < 2**31:
        raise ProtocolError(f"{word[:40]!r} in a topic is no 32-bit number")
    return int(word)


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_BYTES_MAX + 1)
    except zlib.error as error:
        raise ProtocolError(f"registration of {len(data)} bytes does not inflate: {error}") from error
    if len(inflated) > INFLATED_BYTES_MAX:
        raise ProtocolError(f"registration of {len(data)} bytes inflates to more than {INFLATED_BYTES_MAX}")
    return inflated


class _Dense:
    """Reads the parts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self, what: str) -> int:
        number = self._number()
        if not 0 <= number <= ENTRIES_MAX:
            raise ProtocolError(f"registration with {number} {what}, allowed are {ENTRIES_MAX}")
        return number

    def text(self) -> str:
        try:
            return self._sized_bytes().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"registration holds a text that is not UTF-8: {error}") from error

    def json(self, cls: type[_T]) -> _T:
        return decode_body(cls, self._sized_bytes())

    def _sized_bytes(self) -> bytes:
        return self._take(self._number())

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ProtocolError(
                f"registration ends at {len(self._data)}, before {length} bytes from {self._at}"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
