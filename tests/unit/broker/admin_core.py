"""A broker without a shell: one core over a store in memory, and a clock that moves when it is told to."""

import itertools
from typing import TypeVar

from trimtab.broker import handlers as _handlers  # noqa: F401 - declares every handler
from trimtab.broker.core import BrokerCore
from trimtab.broker.requests import Peer
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.store import Store
from trimtab.io.chance import seeded_chance
from trimtab.io.disk import MemoryDisk
from trimtab.model import Now
from trimtab.wire.bodies import (
    Body,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.headers.admin import CreateTopic
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.consume import PullMessage, UpdateConsumerOffset
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.hosts import host_bytes
from trimtab.wire.properties import encode_properties

B = TypeVar("B", bound=Body)

MINE = 1
START = Now(1_000_000, 1_700_000_000_000)
ADDRESS = "127.0.0.1:10911"


class Bench:
    """Asks a core, and hears what it answers."""

    def __init__(self, settings: BrokerSettings | None = None, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.store = Store.open(self.disk)
        self.now = START
        self.core = BrokerCore(settings or BrokerSettings(), self.store, seeded_chance(1), ADDRESS, START)
        self.core.on_connect(Peer(MINE, "127.0.0.1:50000", host_bytes("127.0.0.1:50000")))
        self._opaques = itertools.count(1)

    def name_servers_know(self) -> None:
        """As if they had been told of every change."""
        self.core.changed_routes = set()

    def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        version: int = 399,
        ext: dict[str, str] | None = None,
    ) -> Command:
        """The answer to one request, which must come at once."""
        answers = self.tell(code, header, body, flag=flag, version=version, ext=ext)
        assert len(answers) == 1, answers
        assert not self.core.incidents, self.core.incidents
        return answers[0]

    def tell(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        version: int = 399,
        ext: dict[str, str] | None = None,
    ) -> list[Command]:
        """Whatever comes back to one request."""
        fields = {**({} if header is None else encode_ext(header)), **(ext or {})}
        command = Command(
            code=code, opaque=next(self._opaques), flag=flag, ext=fields, body=body, version=version
        )
        (frame,) = FrameDecoder().feed(encode_command(command))
        self.core.on_frame(MINE, frame, self.now)
        self.core.finish(self.now)
        return self.heard()

    def heard(self) -> list[Command]:
        frames = self.core.outbox.pop(MINE, [])
        return [decode_command(frame) for raw in frames for frame in FrameDecoder().feed(bytes(raw))]

    def good(
        self, code: int, header: Header | None = None, body: bytes = b"", *, version: int = 399
    ) -> Command:
        answer = self.ask(code, header, body, version=version)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    def body(self, body_type: type[B], code: int, header: Header | None = None, *, version: int = 399) -> B:
        return decode_body(body_type, self.good(code, header, version=version).body)

    def refusal(self, code: int, header: Header | None = None, body: bytes = b"") -> tuple[int, str]:
        answer = self.ask(code, header, body)
        assert answer.code != ResponseCode.SUCCESS
        assert answer.remark
        return answer.code, answer.remark

    # --- what the tests need again and again

    def pass_time(self, ms: int, *, step_ms: int = 1_000) -> None:
        """Ticks as the shell would, less often."""
        for _ in range(ms // step_ms):
            self.now = Now(self.now.monotonic_ms + step_ms, self.now.wall_ms + step_ms)
            self.core.tick(self.now)

    def make_topic(self, topic: str = "orders", *, queues: int = 2, order: bool = False) -> None:
        self.good(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(topic, queues=queues, order=order))

    def send(
        self, topic: str, body: bytes = b"hello", queue_id: int = 0, properties: dict[str, str] | None = None
    ) -> str:
        """The offset message id of a message that is stored."""
        header = SendMessageV2(
            producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
            sys_flag=0, born_timestamp=1, flag=0, properties=encode_properties(properties or {}).decode(),
            reconsume_times=0,
        )  # fmt: skip
        return self.good(RequestCode.SEND_MESSAGE_V2, header, body).ext["msgId"]

    def pull(self, topic: str, group: str, offset: int = 0, queue_id: int = 0) -> Command:
        header = PullMessage(
            consumer_group=group, topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=32, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
        )  # fmt: skip
        return self.ask(RequestCode.PULL_MESSAGE, header)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffset(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        self.good(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def join(self, group: str, *topics: str) -> None:
        """A consumer of these topics comes online."""
        data = ConsumerData(
            group_name=group, consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=tuple(SubscriptionData(topic=topic, sub_string="*") for topic in topics),
        )  # fmt: skip
        beat = HeartbeatData(client_id="c1", consumer_data_set=(data,))
        answers = self.tell(RequestCode.HEART_BEAT, body=encode_body(beat))
        assert any(answer.is_response and answer.code == ResponseCode.SUCCESS for answer in answers)

    def restarted(self) -> "Bench":
        """The same store, opened anew as after a restart."""
        self.core.states.save_offsets(self.core.offsets)
        self.store.close()
        return Bench(self.core.settings, self.disk)


def topic_header(
    topic: str, *, queues: int = 2, perm: int = 6, order: bool = False, attributes: str | None = None
) -> CreateTopic:
    return CreateTopic(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
        topic_filter_type="SINGLE_TAG", order=order, attributes=attributes,
    )  # fmt: skip
