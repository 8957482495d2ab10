"""Topics: making, altering, deleting and listing them."""

from collections.abc import Mapping

from trimtab.broker.core import BrokerCore
from trimtab.broker.handlers.saving import answer_when_saved
from trimtab.broker.names import PERM_INHERIT, PERM_PRIORITY, PERM_READ_WRITE, topic_complaint
from trimtab.broker.requests import Access, Answer, Later, NoHeader, Refused, Request, handles
from trimtab.wire.bodies import TopicConfig, TopicConfigAndMapping, TopicFilterType, TopicList
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import CreateTopic, GetTopicConfig, TopicOnly

PERM_MAX = PERM_PRIORITY | PERM_READ_WRITE | PERM_INHERIT
ATTRIBUTES_MAX = 64
ATTRIBUTES_CHARACTERS_MAX = 4_096


@handles(RequestCode.UPDATE_AND_CREATE_TOPIC, header=CreateTopic, access=Access(admin=True))
def create_topic(core: BrokerCore, request: Request[CreateTopic]) -> Later:
    """Makes or alters a topic; answered when it is on disk and the name servers know of it."""
    header = request.header
    _refuse_bad_topic(core, header.topic)
    known = core.topics.get(header.topic)
    topic = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=_queues(core, "read", header.read_queue_nums),
        write_queue_nums=_queues(core, "write", header.write_queue_nums),
        perm=_perm(header.perm),
        topic_filter_type=_filter_type(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=_attributes(header.attributes, (known and known.attributes) or {}),
    )
    core.topics.put(topic, request.now)
    return answer_when_saved(
        core, request, lambda saved: core.topic_changed(header.topic, saved), must_be_registered=True
    )


def _refuse_bad_topic(core: BrokerCore, topic: str) -> None:
    complaint = topic_complaint(topic)
    if complaint is None and core.topics.is_system(topic):
        complaint = f"The topic[{topic}] is conflict with system topic."
    if complaint is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, complaint)


def _queues(core: BrokerCore, which: str, queues: int) -> int:
    queues_max = core.settings.queues_per_topic_max
    if not 0 <= queues <= queues_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"{which}QueueNums is {queues}, it must be between 0 and {queues_max}"
        )
    return queues


def _perm(perm: int) -> int:
    if not 0 <= perm <= PERM_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"perm is {perm}; add up 4 to read, 2 to write, 1 to inherit and 8 for priority",
        )
    return perm


def _filter_type(text: str) -> TopicFilterType:
    if text not in TopicFilterType.__members__:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"topicFilterType {text!r} is not SINGLE_TAG or MULTI_TAG")
    return TopicFilterType[text]


def _attributes(changes: str | None, known: Mapping[str, str]) -> dict[str, str] | None:
    """5.x's `+name=value,-name`, applied to what the topic has."""
    attributes = dict(known)
    for change in filter(None, (changes or "").split(",")):
        sign, (name, equals, value) = change[0], change[1:].partition("=")
        if not name or (sign, equals) not in (("+", "="), ("-", "")):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"attribute {change!r} is neither +name=value nor -name")
        attributes.pop(name, None)
        if sign == "+":
            attributes[name] = value
    characters = sum(len(name) + len(value) for name, value in attributes.items())
    if len(attributes) > ATTRIBUTES_MAX or characters > ATTRIBUTES_CHARACTERS_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"a topic has at most {ATTRIBUTES_MAX} attributes of {ATTRIBUTES_CHARACTERS_MAX} characters",
        )
    return attributes or None


@handles(RequestCode.DELETE_TOPIC_IN_BROKER, header=TopicOnly, access=Access(admin=True))
def delete_topic(core: BrokerCore, request: Request[TopicOnly]) -> Later:
    """Forgets a topic, its messages, and how far anybody had come in it. Name servers are told by whoever deletes it, as at Apache's."""
    topic = request.header.topic
    _refuse_bad_topic(core, topic)
    core.finish(request.now)  # what this wake-up brought for the topic goes its ordinary way first
    core.topics.remove(topic, core.store.written_end, request.now)
    core.store.delete_topic(topic)
    core.offsets.drop_topic(topic)
    core.stats.drop_topic(topic)
    core.states.save_offsets(core.offsets)
    return answer_when_saved(core, request, core.save_topics)


@handles(RequestCode.GET_ALL_TOPIC_CONFIG, header=NoHeader, access=Access(admin=True))
def all_topics(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """Every topic, and the version of them all."""
    return Answer(body=encode_body(core.topics.snapshot()))


@handles(RequestCode.GET_TOPIC_CONFIG, header=GetTopicConfig, access=Access(consume_topic="topic"))
def topic_config(core: BrokerCore, request: Request[GetTopicConfig]) -> Answer:
    """One topic; tools of 5.x ask for it before much else."""
    topic = core.topics.get(request.header.topic)
    if topic is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {request.header.topic}")
    config = TopicConfigAndMapping(
        topic_name=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        topic_filter_type=topic.topic_filter_type,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=topic.attributes,
    )
    return Answer(body=encode_body(config))


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, header=NoHeader, access=Access(admin=True))
def system_topics(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """The topics that are the broker's own."""
    return Answer(body=encode_body(TopicList(topic_list=tuple(core.topics.system_topic_names()))))
