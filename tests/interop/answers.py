"""What is asked of two servers to compare their answers, and what may differ without mattering.

Every function is a small conversation with one broker or name server. It takes topics and groups of its own, so that the
conversations can be held in any order, and asks good, odd and bad things. Each answer is noted under a name.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.interop.servers import eventually, unique
from tests.raw import RawConnection
from trimtab.errors import ProtocolError
from trimtab.wire.codes import RequestCode as Ask
from trimtab.wire.codes import ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.messages import decode_messages

FAR_MS = 9_999_999_999_999
BORN_MS = 1_700_000_000_000
PROPERTIES = "UNIQ_KEY\x01AC11000100002A9F0000000000000001\x02WAIT\x01true\x02TAGS\x01TagA"
OF_5X = {
    "transactionId",
    "groupSysFlag",
    "topicSysFlag",
    "forbiddenType",
    "IS_SUB_CHANGE",
    "IS_SUPPORT_HEART_BEAT_V2",
}
"""Fields of answers that 5.x brokers add; clients do without."""
OWN_PROPERTIES = {"MSG_REGION", "TRACE_ON", "WAIT", "CLUSTER", "UNIQ_KEY", "ORIGIN_MESSAGE_ID"}
"""What one version or another adds to a stored message or forgets to remove, and what says where it lies."""
TIMES_AND_PLACES = re.compile(
    r'"(lastUpdateTimestamp|lastTimestamp|timestamp|counter|clientAddr|physicOffset|physicSize|brokerAddr|\w+TimeStamp(?:Str)?'
    r'|delayTime|consumeTps|topicPutTps|stateVersion|leaseEpochs|pullOffset|filterServerTable|enableActingMaster|attributes|zoneName)"'
)
INVALID_PARAMETER = 29


@dataclass
class Talk:
    """A connection each to a broker and its name server, and the answers so far."""

    broker: str
    nameserver: str
    name: str
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _open: dict[str, RawConnection] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._open.values():
            connection.wire.close()

    def ask(
        self,
        name: str,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: object = b"",
        *,
        of_names: bool = False,
    ) -> Command:
        """Asks and notes."""
        address = self.nameserver if of_names else self.broker
        connection = self._open.get(address) or self._open.setdefault(address, RawConnection(address))
        fields = {key: str(value) for key, value in (ext or {}).items() if value is not None}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = connection.ask(code, fields, data)
        assert name not in self.answers, f"{name} was asked before"
        self.answers[name] = self._plain(answer)
        return answer

    def _plain(self, answer: Command) -> dict[str, Any]:
        code = ResponseCode.SYSTEM_ERROR if answer.code == INVALID_PARAMETER else answer.code
        ext = {key: value for key, value in (answer.ext or {}).items() if key not in OF_5X}
        if code != ResponseCode.SUCCESS:
            ext = {key: value for key, value in ext.items() if key not in ("MSG_REGION", "TRACE_ON")}
        ids = {key: str(len((value or "").split(","))) for key, value in ext.items() if key == "msgId"}
        times = {key: "some" for key in ext if key.startswith("indexLast") or key in ("timestamp", "version")}
        return {"code": int(code), "ext": ext | ids | times, "body": self._plain_body(answer.body)}

    def _plain_body(self, body: bytes) -> object:
        if not body:
            return None
        if body[:1] not in (b"{", b"["):
            return _plain_messages(body)
        text = body.decode().replace(self.broker, "<broker>").replace(self.nameserver, "<names>")
        return _sorted(decode_body(dict[str, Any], text.encode()))


def _plain_messages(body: bytes) -> object:
    try:
        messages = decode_messages(body)
    except ProtocolError:
        return "bytes"
    found = []
    for message in messages:
        kept = {key: value for key, value in message.properties.items() if key not in OWN_PROPERTIES}
        fact = (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.flag,
            message.sys_flag,
            message.reconsume_times,
        )
        found.append([*fact, message.stored_body.hex(), sorted(kept.items())])
    return found


def _sorted(value: Any) -> Any:
    """Without order, times and addresses."""
    if isinstance(value, dict):
        kept = {
            _sorted_key(key): _sorted(one)
            for key, one in value.items()
            if not TIMES_AND_PLACES.fullmatch(f'"{key}"')
        }
        return dict(sorted(kept.items()))
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=repr)
    return value


def _sorted_key(key: str) -> str:
    """An object that is a key has its fields in some order."""
    return json.dumps(json.loads(key), sort_keys=True) if key.startswith("{") else key


# --- requests -------------------------------------------------------------------------------------------------------


def sending(topic: str, queue_id: object = 0, **changes: object) -> dict[str, object]:
    return {
        "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": BORN_MS, "h": 0, "i": PROPERTIES, "j": 0,
        "k": "false", "m": "false",
    } | changes  # fmt: skip


def pulling(topic: str, queue_id: int = 0, offset: int = 0, **changes: Any) -> dict[str, object]:
    return {
        "consumerGroup": f"puller-{topic[-10:]}", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    } | changes  # fmt: skip


def making(topic: str, **changes: object) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    } | changes  # fmt: skip


def batch(*bodies: bytes, properties: bytes = b"") -> bytes:
    tail = struct.pack(">h", len(properties)) + properties
    return b"".join(
        struct.pack(">iiiii", 20 + len(body) + len(tail), 0, 0, 0, len(body)) + body + tail for body in bodies
    )


def heartbeat(client_id: str, group: str, *topics: str) -> dict[str, object]:
    subscriptions = [
        {
            "topic": topic,
            "subString": "*",
            "tagsSet": [],
            "codeSet": [],
            "subVersion": BORN_MS,
            "expressionType": "TAG",
        }
        for topic in topics
    ]
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    return {
        "clientID": client_id,
        "producerDataSet": [{"groupName": f"p-{group}"}],
        "consumerDataSet": [consumer],
    }


def has_dispatched(talk: Talk, topic: str, queue_id: int, count: int) -> None:
    """Apache shows messages a little after it acknowledged them."""
    with RawConnection(talk.broker) as connection:
        eventually(
            lambda: (
                connection.ask(Ask.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}).ext
                == {"offset": str(count)}
            ),
            f"{count} messages in {topic}:{queue_id}",
        )


# --- conversations --------------------------------------------------------------------------------------------------


def topics(talk: Talk) -> None:
    name, create = talk.name, Ask.UPDATE_AND_CREATE_TOPIC
    talk.ask("made", create, making(name))
    talk.ask("made again", create, making(name))
    for wrong in ("bad name!", "", "x" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"):
        talk.ask(f"made as {wrong[:20]!r}", create, making(wrong))
    talk.ask("made without most", create, {"topic": f"{name}-m"})
    talk.ask("write only", create, making(f"{name}-w", perm=2))
    talk.ask("read only", create, making(f"{name}-r", perm=4))
    talk.ask("stats", Ask.GET_TOPIC_STATS_INFO, {"topic": name})
    talk.ask("stats of none", Ask.GET_TOPIC_STATS_INFO, {"topic": f"{name}-none"})
    talk.ask("stats of nothing", Ask.GET_TOPIC_STATS_INFO)
    talk.ask("pull from write only", Ask.PULL_MESSAGE, pulling(f"{name}-w"))
    talk.ask("send to write only", Ask.SEND_MESSAGE_V2, sending(f"{name}-w"), b"x")
    talk.ask("deleted", Ask.DELETE_TOPIC_IN_BROKER, {"topic": name})
    talk.ask("stats of deleted", Ask.GET_TOPIC_STATS_INFO, {"topic": name})
    talk.ask("pull from deleted", Ask.PULL_MESSAGE, pulling(name))
    talk.ask("deleted twice", Ask.DELETE_TOPIC_IN_BROKER, {"topic": name})
    talk.ask("system topic deleted", Ask.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
    talk.ask("nothing deleted", Ask.DELETE_TOPIC_IN_BROKER, {"topic": ""})


def sends(talk: Talk) -> None:
    topic, send = talk.name, Ask.SEND_MESSAGE_V2
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    talk.ask("plain", send, sending(topic), b"hello")
    long = {
        "producerGroup": "pg", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 2, "sysFlag": 0,
        "bornTimestamp": BORN_MS, "flag": 0, "properties": "KEYS\x01k1 k2\x02TAGS\x01TagB", "reconsumeTimes": 0, "unitMode": "false",
    }  # fmt: skip
    talk.ask("long names", Ask.SEND_MESSAGE, long, b"v1")
    talk.ask(
        "long names, batch", Ask.SEND_MESSAGE, long | {"batch": "true", "properties": ""}, batch(b"1", b"2")
    )
    talk.ask("queue too high", send, sending(topic, 4), b"x")
    talk.ask("queue is no number", send, sending(topic, "abc"), b"x")
    talk.ask("queue left open", send, sending(f"{topic}-one", -1, d=1), b"x")
    talk.ask("no properties", send, sending(topic, 3, i=None), b"x")
    talk.ask("odd properties", send, sending(topic, 3, i="novalue\x02a\x01b\x01c\x02\x01d\x02e\x01"), b"x")
    talk.ask("no topic", send, sending(topic, b=None), b"x")
    talk.ask("no queue", send, sending(topic, e=None), b"x")
    talk.ask("makes its topic", send, sending(f"{topic}-auto", d=3), b"x")
    talk.ask("made topic", Ask.GET_MAX_OFFSET, {"topic": f"{topic}-auto", "queueId": 2})
    talk.ask("makes a wide topic", send, sending(f"{topic}-wide", d=100), b"x")
    talk.ask("beyond the made topic", send, sending(f"{topic}-high", 7), b"x")
    talk.ask("topic without default", send, sending(f"{topic}-lone", c="nope"), b"x")
    for wrong in ("bad topic!", "", "z" * 128, "SCHEDULE_TOPIC_XXXX"):
        talk.ask(f"to {wrong[:20]!r}", send, sending(wrong), b"x")
    talk.ask("long property", send, sending(topic, i="a\x01" + "b" * 32_768), b"x")
    talk.ask("long body", send, sending(topic), b"x" * ((4 << 20) + 1))
    talk.ask("to a retry topic", send, sending(f"%RETRY%{topic}", j=1, l=3), b"x")
    talk.ask("to a dead letter topic", send, sending(f"%DLQ%x{topic}"), b"x")
    talk.ask("delayed below all", send, sending(topic, 3, i="DELAY\x01-1"), b"d")
    talk.ask("not compressed", send, sending(f"{topic}-odd", f=1), b"not zip")
    has_dispatched(talk, topic, 3, 3)
    has_dispatched(talk, topic, 2, 3)
    for queue_id in range(4):
        talk.ask(f"queue {queue_id}", Ask.PULL_MESSAGE, pulling(topic, queue_id))


def batches(talk: Talk) -> None:
    topic, send = talk.name, Ask.SEND_BATCH_MESSAGE
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    whole = sending(topic, m="true", i="WAIT\x01true")
    talk.ask("three", send, whole, batch(b"1", b"2", b"3", properties=b"TAGS\x01b"))
    talk.ask("by a single send", Ask.SEND_MESSAGE_V2, whole, batch(b"4", b"5"))
    talk.ask("makes its topic", send, sending(f"{topic}-auto", m="true", i=""), batch(b"1"))
    talk.ask("delayed", send, sending(topic, m="true", i="DELAY\x012"), batch(b"1"))
    talk.ask("queue too high", send, sending(topic, 9, m="true", i=""), batch(b"1"))
    has_dispatched(talk, topic, 0, 5)
    talk.ask("pulled", Ask.PULL_MESSAGE, pulling(topic))


def pulls(talk: Talk) -> None:
    topic, pull = talk.name, Ask.PULL_MESSAGE
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    talk.ask("first", Ask.SEND_MESSAGE_V2, sending(topic), b"1")
    talk.ask("second", Ask.SEND_MESSAGE_V2, sending(topic, i="TAGS\x01TagB"), b"2")
    has_dispatched(talk, topic, 0, 2)
    talk.ask("all", pull, pulling(topic))
    for tags in ("TagA", "TagB || TagC", "Nope", "", "||", "a||", " TagA "):
        talk.ask(f"tags {tags!r}", pull, pulling(topic, subscription=tags))
    talk.ask("no subscription", pull, pulling(topic, subscription=None))
    talk.ask("no kind of expression", pull, pulling(topic, expressionType=None))
    for offset in (1, 2, 3, 100, -1, -5):
        talk.ask(f"from {offset}", pull, pulling(topic, 0, offset))
    for offset in (0, 5, -1):
        talk.ask(f"empty queue from {offset}", pull, pulling(topic, 1, offset))
    talk.ask("may wait at the end", pull, pulling(topic, 0, 2, sysFlag=6, suspendTimeoutMillis=50))
    talk.ask("may wait beyond", pull, pulling(topic, 0, 100, sysFlag=6, suspendTimeoutMillis=50))
    talk.ask("may wait at an empty queue", pull, pulling(topic, 1, 0, sysFlag=6, suspendTimeoutMillis=50))
    talk.ask("may wait no time", pull, pulling(topic, 0, 2, sysFlag=6, suspendTimeoutMillis=-1))
    for queue_id in (-1, 4):
        talk.ask(f"queue {queue_id}", pull, pulling(topic, queue_id))
    for count in (0, 1):
        talk.ask(f"at most {count}", pull, pulling(topic, maxMsgNums=count))
    talk.ask("topic that is none", pull, pulling(f"{topic}-none"))
    talk.ask("no topic", pull, pulling(""))
    talk.ask("of a group that is away", pull, pulling(topic, sysFlag=0))
    talk.ask("no flags", pull, pulling(topic, sysFlag=None))
    talk.ask("dead letters that are none", pull, pulling(f"%DLQ%{topic}"))
    group = {"consumerGroup": f"puller-{topic[-10:]}", "topic": topic, "queueId": 0}
    talk.ask("with a commit", pull, pulling(topic, 0, 1, sysFlag=5, commitOffset=1))
    talk.ask("committed", Ask.QUERY_CONSUMER_OFFSET, group)
    talk.ask("with a commit below zero", pull, pulling(topic, 0, 1, sysFlag=5, commitOffset=-1))
    talk.ask("committed below zero", Ask.QUERY_CONSUMER_OFFSET, group)


def offsets(talk: Talk) -> None:
    topic = talk.name
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    talk.ask("first", Ask.SEND_MESSAGE_V2, sending(topic), b"1")
    talk.ask("second", Ask.SEND_MESSAGE_V2, sending(topic), b"2")
    has_dispatched(talk, topic, 0, 2)
    for of, queue_id in ((topic, 0), (topic, 1), (topic, 99), (topic, -1), (f"{topic}-none", 0)):
        place = {"topic": of, "queueId": queue_id}
        where = f"{of.removeprefix(topic) or 'topic'}:{queue_id}"
        talk.ask(f"max {where}", Ask.GET_MAX_OFFSET, place)
        talk.ask(f"min {where}", Ask.GET_MIN_OFFSET, place)
        talk.ask(f"earliest {where}", Ask.GET_EARLIEST_MSG_STORETIME, place)
        for time_ms in (0, -1, FAR_MS):
            talk.ask(f"at {time_ms} {where}", Ask.SEARCH_OFFSET_BY_TIMESTAMP, place | {"timestamp": time_ms})
    talk.ask("search without a time", Ask.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": topic, "queueId": 0})
    talk.ask("max without a queue", Ask.GET_MAX_OFFSET, {"topic": topic})
    group = {"consumerGroup": f"g-{topic}", "topic": topic, "queueId": 0}
    talk.ask("group", Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body={"groupName": f"g-{topic}"})
    talk.ask("of a new group", Ask.QUERY_CONSUMER_OFFSET, group)
    for offset in (2, 1, 1_000, -1):
        talk.ask(f"commit {offset}", Ask.UPDATE_CONSUMER_OFFSET, group | {"commitOffset": offset})
        talk.ask(f"after {offset}", Ask.QUERY_CONSUMER_OFFSET, group)
    talk.ask("commit nothing", Ask.UPDATE_CONSUMER_OFFSET, group)
    talk.ask("commit again", Ask.UPDATE_CONSUMER_OFFSET, group | {"commitOffset": 1})
    talk.ask("consume stats", Ask.GET_CONSUME_STATS, {"consumerGroup": f"g-{topic}", "topic": topic})
    talk.ask("consume stats of nobody", Ask.GET_CONSUME_STATS, {"consumerGroup": f"nobody-{topic}"})
    talk.ask(
        "clone", Ask.CLONE_GROUP_OFFSET, {"srcGroup": f"g-{topic}", "destGroup": f"c-{topic}", "topic": topic}
    )
    talk.ask("cloned", Ask.QUERY_CONSUMER_OFFSET, group | {"consumerGroup": f"c-{topic}"})
    talk.ask("who", Ask.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    talk.ask("span of none", Ask.QUERY_CONSUME_TIME_SPAN, {"topic": f"{topic}-none", "group": f"g-{topic}"})
    reset = {"topic": topic, "group": f"nobody-{topic}", "timestamp": 0, "isForce": "true"}
    for ask in (Ask.INVOKE_BROKER_TO_RESET_OFFSET, Ask.INVOKE_BROKER_TO_GET_CONSUMER_STATUS):
        talk.ask(f"{ask.name} of nobody", ask, reset)
        talk.ask(f"{ask.name} of no topic", ask, reset | {"topic": f"{topic}-none"})


def queries(talk: Talk) -> None:
    topic = talk.name
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    unique_key = "AC11000100002A9F00000000000000F1"
    properties = f"KEYS\x01kk1 kk2\x02UNIQ_KEY\x01{unique_key}\x02TAGS\x01TagA"
    sent = talk.ask("keyed", Ask.SEND_MESSAGE_V2, sending(topic, i=properties), b"keyed")
    question = {"topic": topic, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    with RawConnection(talk.broker) as other:
        fields = {key: str(value) for key, value in (question | {"key": "kk2"}).items()}
        eventually(lambda: other.ask(Ask.QUERY_MESSAGE, fields).code == 0, "the message in the index")
    for key in ("kk1", unique_key, "nothing", ""):
        for is_unique in ("true", "false", None):
            talk.ask(
                f"key {key!r} {is_unique}",
                Ask.QUERY_MESSAGE,
                question | {"key": key, "_UNIQUE_KEY_QUERY": is_unique},
            )
    for change in ({"topic": f"{topic}-none"}, {"maxNum": 0}, {"maxNum": -1}, {"endTimestamp": 1}):
        talk.ask(
            f"{next(iter(change))} {str(next(iter(change.values())))[-5:]}",
            Ask.QUERY_MESSAGE,
            question | {"key": "kk1"} | change,
        )
    talk.ask("half a question", Ask.QUERY_MESSAGE, {"topic": topic, "key": "kk1"})
    assert sent.ext is not None
    offset = int(sent.ext["msgId"][16:], 16)
    talk.ask("viewed", Ask.VIEW_MESSAGE_BY_ID, {"offset": offset})
    for wrong in (offset + 1, -1, 1 << 50, None):
        talk.ask(
            f"viewed {'beside' if wrong == offset + 1 else wrong}", Ask.VIEW_MESSAGE_BY_ID, {"offset": wrong}
        )
    queue = {"topic": topic, "queueId": 0, "index": 0, "count": 10}
    talk.ask("entries", Ask.QUERY_CONSUME_QUEUE, queue)
    talk.ask("stats of no name", Ask.VIEW_BROKER_STATS_DATA, {"statsName": "NOPE", "statsKey": topic})
    talk.ask(
        "stats of no key",
        Ask.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": f"{topic}-none"},
    )


def groups(talk: Talk) -> None:
    topic, group = talk.name, f"g-{talk.name}"
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    nobody = {"consumerGroup": f"nobody-{topic}"}
    talk.ask("members of nobody", Ask.GET_CONSUMER_LIST_BY_GROUP, nobody)
    talk.ask("members of nothing", Ask.GET_CONSUMER_LIST_BY_GROUP)
    talk.ask("connections of nobody", Ask.GET_CONSUMER_CONNECTION_LIST, nobody)
    talk.ask("producers of nobody", Ask.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": f"nobody-{topic}"})
    talk.ask("heartbeat", Ask.HEART_BEAT, body=heartbeat("c1", group, topic, f"%RETRY%{group}"))
    talk.ask("members", Ask.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    talk.ask("connections", Ask.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    talk.ask("producers", Ask.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": f"p-{group}"})
    by_group: dict[str, Any] = {"consumerGroup": group, "sysFlag": 0, "subscription": None}
    talk.ask("sent", Ask.SEND_MESSAGE_V2, sending(topic), b"1")
    has_dispatched(talk, topic, 0, 1)
    for version in (BORN_MS, BORN_MS + 1, 1):
        talk.ask(
            f"pull of version {version}", Ask.PULL_MESSAGE, pulling(topic, **by_group, subVersion=version)
        )
    talk.ask("pull of another topic", Ask.PULL_MESSAGE, pulling("TBW102", **by_group))
    talk.ask("retry topic", Ask.GET_TOPIC_STATS_INFO, {"topic": f"%RETRY%{group}"})
    for body in (b"{nope", b"", {"clientID": "c1"}):
        talk.ask(f"heartbeat {body!r}", Ask.HEART_BEAT, body=body)
    talk.ask("members still", Ask.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    talk.ask("who", Ask.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    talk.ask(
        "running info of nobody",
        Ask.GET_CONSUMER_RUNNING_INFO,
        nobody | {"clientId": "x", "jstackEnable": "false"},
    )
    talk.ask(
        "farewell of nobody", Ask.UNREGISTER_CLIENT, {"clientID": "x", "consumerGroup": f"nobody-{topic}"}
    )
    talk.ask(
        "farewell",
        Ask.UNREGISTER_CLIENT,
        {"clientID": "c1", "producerGroup": f"p-{group}", "consumerGroup": group},
    )
    talk.ask("members after it", Ask.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    closed = f"off-{topic}"
    talk.ask(
        "closed group",
        Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body={"groupName": closed, "consumeEnable": False},
    )
    talk.ask("pull of a closed group", Ask.PULL_MESSAGE, pulling(topic, consumerGroup=closed))
    talk.ask("group deleted", Ask.DELETE_SUBSCRIPTIONGROUP, {"groupName": closed})
    talk.ask("group deleted twice", Ask.DELETE_SUBSCRIPTIONGROUP, {"groupName": closed})


def sent_back(talk: Talk) -> None:
    topic, group = talk.name, f"g-{talk.name}"
    talk.ask("heartbeat", Ask.HEART_BEAT, body=heartbeat("c1", group, topic, f"%RETRY%{group}"))
    sent = talk.ask("sent", Ask.SEND_MESSAGE_V2, sending(topic), b"1")
    assert sent.ext is not None
    fields = {
        "offset": int(sent.ext["msgId"][16:], 16), "group": group, "delayLevel": -1, "originMsgId": "x", "originTopic": topic,
        "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    talk.ask("back for good", Ask.CONSUMER_SEND_MSG_BACK, fields)
    talk.ask("back too often", Ask.CONSUMER_SEND_MSG_BACK, fields | {"delayLevel": 0, "maxReconsumeTimes": 0})
    talk.ask("back later", Ask.CONSUMER_SEND_MSG_BACK, fields | {"delayLevel": 18})
    talk.ask("back from nowhere", Ask.CONSUMER_SEND_MSG_BACK, fields | {"offset": 1 << 40})
    talk.ask("half a word", Ask.CONSUMER_SEND_MSG_BACK, {"group": group})
    has_dispatched(talk, f"%DLQ%{group}", 0, 2)
    talk.ask("dead", Ask.PULL_MESSAGE, pulling(f"%DLQ%{group}"))
    talk.ask("end of no transaction", Ask.END_TRANSACTION, {
        "producerGroup": "pg", "tranStateTableOffset": 0, "commitLogOffset": 1 << 40, "commitOrRollback": 8, "msgId": "x",
    })  # fmt: skip
    talk.ask("end that is none", Ask.END_TRANSACTION, {
        "producerGroup": "pg", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 3, "msgId": "x",
    })  # fmt: skip


def locks(talk: Talk) -> None:
    group = f"g-{talk.name}"

    def asked(client: str | None, *queues: int, of: str | None = group) -> dict[str, object]:
        found = [{"brokerName": "broker-a", "queueId": queue, "topic": talk.name} for queue in queues]
        whole = {"clientId": client, "consumerGroup": of, "mqSet": found}
        return {key: value for key, value in whole.items() if value is not None}

    lock, unlock = Ask.LOCK_BATCH_MQ, Ask.UNLOCK_BATCH_MQ
    talk.ask("two", lock, body=asked("c1", 0, 1))
    talk.ask("by another", lock, body=asked("c2", 1, 2))
    talk.ask("again", lock, body=asked("c1", 0))
    talk.ask("unlocked by another", unlock, body=asked("c2", 0))
    talk.ask("still held", lock, body=asked("c2", 0))
    talk.ask("unlocked", unlock, body=asked("c1", 0))
    talk.ask("then free", lock, body=asked("c2", 0))
    talk.ask("odd queue", lock, body=asked("c2", -5))
    talk.ask("none", lock, body=asked("c2"))
    talk.ask("without a group", lock, body=asked("c2", 3, of=None))
    talk.ask("garbage", lock, body=b"nope")
    talk.ask("nothing", lock)
    talk.ask("nothing unlocked", unlock)
    talk.ask("unlocked in no group", unlock, body=asked("c9", 0, of=f"nobody-{talk.name}"))


def name_server(talk: Talk) -> None:
    topic = talk.name
    talk.ask("topic", Ask.UPDATE_AND_CREATE_TOPIC, making(topic))
    route = {"topic": topic}
    with RawConnection(talk.nameserver) as other:
        eventually(lambda: other.ask(Ask.GET_ROUTEINFO_BY_TOPIC, route).code == 0, "a route")
    for name, code, ext in (
        ("route", Ask.GET_ROUTEINFO_BY_TOPIC, route),
        ("route of none", Ask.GET_ROUTEINFO_BY_TOPIC, {"topic": f"{topic}-none"}),
        ("cluster", Ask.GET_BROKER_CLUSTER_INFO, {}),
        ("topics of no cluster", Ask.GET_TOPICS_BY_CLUSTER, {"cluster": "nope"}),
        ("system topics", Ask.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
        ("unit topics", Ask.GET_UNIT_TOPIC_LIST, {}),
        ("unit topics 2", Ask.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
        ("unit topics 3", Ask.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}),
        ("put", Ask.PUT_KV_CONFIG, {"namespace": topic, "key": "k", "value": "v"}),
        ("get", Ask.GET_KV_CONFIG, {"namespace": topic, "key": "k"}),
        ("get none", Ask.GET_KV_CONFIG, {"namespace": topic, "key": "z"}),
        ("get nowhere", Ask.GET_KV_CONFIG, {"namespace": f"{topic}-none", "key": "k"}),
        ("list", Ask.GET_KVLIST_BY_NAMESPACE, {"namespace": topic}),
        ("list of none", Ask.GET_KVLIST_BY_NAMESPACE, {"namespace": f"{topic}-none"}),
        ("delete", Ask.DELETE_KV_CONFIG, {"namespace": topic, "key": "k"}),
        ("delete again", Ask.DELETE_KV_CONFIG, {"namespace": topic, "key": "k"}),
        ("list after", Ask.GET_KVLIST_BY_NAMESPACE, {"namespace": topic}),
        ("wipe of none", Ask.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "nope"}),
        ("add to none", Ask.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "nope"}),
        ("delete no topic", Ask.DELETE_TOPIC_IN_NAMESRV, {"topic": f"{topic}-none"}),
    ):
        talk.ask(name, code, ext, of_names=True)
    talk.ask("unknown request", 9_999)
    talk.ask("check", Ask.CHECK_CLIENT_CONFIG, body={
        "clientId": "c", "group": "g", "subscriptionData": {"topic": topic, "subString": "*", "expressionType": "TAG"},
    })  # fmt: skip


CONVERSATIONS: tuple[Callable[[Talk], None], ...] = (
    topics, sends, batches, pulls, offsets, queries, groups, sent_back, locks, name_server,
)  # fmt: skip


def hold(
    conversation: Callable[[Talk], None], broker: str, nameserver: str, name: str
) -> dict[str, dict[str, Any]]:
    """The answers of one server."""
    talk = Talk(broker, nameserver, name)
    try:
        conversation(talk)
    finally:
        talk.close()
    return talk.answers


def new_name() -> str:
    return unique("answers")
