"""Pulls: reading a queue from an offset on, and waiting for more where there is none."""

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.broker.core import BrokerCore, at_stop, chore, on_growth
from trimtab.broker.fencing import commit_offset
from trimtab.broker.filters import is_tag_filter
from trimtab.broker.names import PERM_READ, RETRY_PREFIX
from trimtab.broker.polls import HeldPull
from trimtab.broker.requests import LATER, Access, Answer, Later, Peer, Refused, Request, handles, handles_hot
from trimtab.broker.sql92 import Filter, FilterSyntaxError, compile_sql92
from trimtab.broker.store import ReadResult, ReadStatus
from trimtab.broker.store.errors import StoreDamagedError
from trimtab.model import Now
from trimtab.wire.bodies import MessageModel, SubscriptionData
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.hashing import java_hash
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse
from trimtab.wire.hot import PullRequest, encode_pull_response
from trimtab.wire.messages import StoredMessage

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4

PASSED_OVER_MAX = 64
"""A held pull whose filter refused this many new messages is answered, so that they are not looked at again and again."""

ALL = "*"
_U32 = 0xFFFFFFFF

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages a pull wants: by the code of their tag, or by their properties."""

    codes: frozenset[int] | None = None
    filter: Filter | None = None

    def accept_tag(self) -> Callable[[int], bool] | None:
        """For the consume queue, which knows the tag's code only."""
        codes = self.codes
        return None if codes is None else lambda code: code & _U32 in codes

    def accept_message(self) -> Callable[[StoredMessage], bool] | None:
        """For the messages themselves."""
        chosen = self.filter
        return None if chosen is None else lambda message: chosen.matches(message.properties)


EVERYTHING = Selection()


@handles(
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    header=PullMessage,
    access=Access(consume_topic="topic", consume_group="consumer_group"),
)
def pull_message(core: BrokerCore, request: Request[PullMessage]) -> Answer | Later:
    """Reads, and waits where there is nothing yet."""
    _pull(core, request.peer, request.command.opaque, request.header, request.now)
    return LATER


@handles_hot(PullRequest)
def pull_hot(core: BrokerCore, peer: Peer, request: PullRequest, _body: bytes, now: Now) -> None:
    """The same, as nearly all pulls come."""
    _pull(core, peer, request.opaque, request.header, now)


def _pull(core: BrokerCore, peer: Peer, opaque: int, header: PullMessage, now: Now) -> None:
    """The first try of a pull: with nothing to give and leave to wait, it is held."""
    judge(core, header, now)
    selection = selection_of(core, header)
    result = read(core, header, selection)
    if header.sys_flag & COMMIT_FLAG:
        commit_offset(core, header)
    if _may_wait(header, result) and not core.polls.is_full():
        deadline_ms = now.monotonic_ms + max(0, header.suspend_timeout_millis)
        core.polls.hold(HeldPull(peer, opaque, header, deadline_ms))
    else:
        answer(core, peer, opaque, header, result)


def judge(core: BrokerCore, header: PullMessage, now: Now) -> None:
    """Refuses what may not be pulled, in the order of Apache's checks."""
    group = core.find_or_create_group(header.consumer_group, now)
    if group is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.consumer_group}] does not exist, create it first",
        )
    if not group.consume_enable:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
        )
    topic = core.require_topic(header.topic)
    if not topic.perm & PERM_READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] readQueueNums:[{topic.read_queue_nums}]",
        )


def selection_of(core: BrokerCore, header: PullMessage) -> Selection:
    """What the pull wants: as it says itself, or as its group's heartbeat said."""
    if header.sys_flag & SUBSCRIPTION_FLAG:
        return _selection_in(header)
    group = core.consumers.get(header.consumer_group)
    if group is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist, {header.consumer_group}",
        )
    config = core.groups.get(header.consumer_group)
    broadcasts = group.manner.message_model == MessageModel.BROADCASTING
    if config is not None and broadcasts and not config.consume_broadcast_enable:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
        )
    subscription = group.subscriptions.get(header.topic)
    if subscription is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's subscription not exist: {header.consumer_group} on {header.topic}",
        )
    if subscription.sub_version < header.sub_version:
        raise Refused(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, f"the consumer's subscription not latest: {header.topic}"
        )
    if is_tag_filter(subscription.expression_type):
        return _by_tags(subscription)
    return _by_sql92(core, header)


def _selection_in(header: PullMessage) -> Selection:
    text = (header.subscription or "").strip()
    if is_tag_filter(header.expression_type):
        if text in ("", ALL):
            return EVERYTHING
        tags = [tag.strip() for tag in text.split("||")]
        if not any(text.split("||")):
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {text}"
            )
        return Selection(codes=frozenset(java_hash(tag) & _U32 for tag in tags if tag))
    try:
        return Selection(filter=compile_sql92(text))
    except FilterSyntaxError as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from error


def _by_tags(subscription: SubscriptionData) -> Selection:
    if subscription.sub_string in (None, "", ALL):
        return EVERYTHING
    return Selection(codes=frozenset(code & _U32 for code in subscription.code_set))


def _by_sql92(core: BrokerCore, header: PullMessage) -> Selection:
    if header.topic.startswith(RETRY_PREFIX):
        return EVERYTHING
    compiled = core.filters.get(header.consumer_group, header.topic)
    if compiled is None:
        raise Refused(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"The broker has no filter of group {header.consumer_group} on topic {header.topic}",
        )
    if compiled.version < header.sub_version:
        raise Refused(
            ResponseCode.FILTER_DATA_NOT_LATEST,
            f"The filter of group {header.consumer_group} on topic {header.topic} is older than its subscription",
        )
    return Selection(filter=compiled.filter)


def read(core: BrokerCore, header: PullMessage, selection: Selection) -> ReadResult:
    """Reads the queue, as much as the asker can take."""
    settings = core.settings
    bytes_max, messages_max = settings.pull_bytes_max, min(header.max_msg_nums, settings.pull_messages_max)
    if header.max_msg_bytes is not None:
        bytes_max = min(header.max_msg_bytes, settings.pull_bytes_asked_max)
        messages_max = header.max_msg_nums
    try:
        return core.store.read(
            header.topic,
            header.queue_id,
            header.queue_offset,
            messages_max=max(messages_max, 1),
            bytes_max=max(bytes_max, 1),
            accept=selection.accept_tag(),
            accept_message=selection.accept_message(),
        )
    except StoreDamagedError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def code_of(header: PullMessage, result: ReadResult) -> ResponseCode:
    """The answer's code. A queue that has nothing is fine only for who begins at its beginning."""
    if result.status in (ReadStatus.NO_MESSAGE_IN_QUEUE, ReadStatus.NO_MATCHED_LOGIC_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _may_wait(header: PullMessage, result: ReadResult) -> bool:
    return bool(header.sys_flag & SUSPEND_FLAG) and code_of(header, result) == ResponseCode.PULL_NOT_FOUND


def answer(core: BrokerCore, peer: Peer, opaque: int, header: PullMessage, result: ReadResult) -> None:
    """Sends the result of a read."""
    fields = PullMessageResponse(
        suggest_which_broker_id=0,
        next_begin_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
    )
    code = code_of(header, result)
    core.stats.pulled(header, result)
    core.send(
        peer.connection,
        encode_pull_response(fields, opaque=opaque, code=code, remark=result.status.value, body=result.body),
    )


def answer_held(core: BrokerCore, pull: HeldPull, now: Now) -> None:
    """Runs a held pull again, for the last time, and answers it."""
    try:
        judge(core, pull.header, now)
        selection = selection_of(core, pull.header)
        answer(core, pull.peer, pull.opaque, pull.header, read(core, pull.header, selection))
    except Refused as refused:
        core.reply(pull.peer.connection, pull.opaque, Answer(refused.code, remark=refused.remark))


@on_growth
def answer_held_pulls(core: BrokerCore, topic: str, queue_id: int, now: Now) -> None:
    """Answers the held pulls that the new messages of a queue are for; the others go on waiting."""
    for pull in core.polls.on_queue((topic, queue_id)):
        try:
            judge(core, pull.header, now)  # much may have been forbidden since it was held
            result = read(core, pull.header, selection_of(core, pull.header))
        except Refused as refused:
            if core.polls.take(pull):
                core.reply(pull.peer.connection, pull.opaque, Answer(refused.code, remark=refused.remark))
            continue
        passed_over = result.next_offset - pull.header.queue_offset
        is_worth_an_answer = result.status is ReadStatus.FOUND or passed_over >= PASSED_OVER_MAX
        if is_worth_an_answer and core.polls.take(pull):
            answer(core, pull.peer, pull.opaque, pull.header, result)


@chore
def answer_overdue_pulls(core: BrokerCore, now: Now) -> None:
    """A pull that waited long enough is told that there is nothing, or gets what came meanwhile."""
    for pull in core.polls.overdue(now.monotonic_ms):
        answer_held(core, pull, now)


@at_stop
def answer_every_held_pull(core: BrokerCore, now: Now) -> None:
    """Whoever waits is answered, so that it can go on elsewhere."""
    for pull in core.polls.all():
        if core.polls.take(pull):
            answer_held(core, pull, now)
