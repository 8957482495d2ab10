"""What a name server answers: one function per request code over its two tables.

`Names.handle` takes a request and gives the answer; it never raises for what a peer sent and never waits.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from trimtab.errors import TrimtabError
from trimtab.names.kv import ORDER_TOPICS, KvConfig, KvLimits
from trimtab.names.routes import (
    SILENCE_MS_MAX,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    BrokerPlace,
    Registration,
    RouteLimits,
    RouteTable,
)
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.lists import KVTable
from trimtab.wire.bodies.registration import RegisterBrokerBody, decode_register_body
from trimtab.wire.bodies.route import BrokerData, TopicRouteData
from trimtab.wire.bodies.topics import DataVersion, TopicConfigSerializeWrapper
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import Form, encode_body
from trimtab.wire.frames import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from trimtab.wire.headers import names
from trimtab.wire.headers.base import Header, decode_ext, encode_ext

REMARK_CHARACTERS_MAX: Final = 2_048
ANSWER_BYTES_MAX: Final = FRAME_BYTES_MAX - HEADER_BYTES_MAX - 8

H = TypeVar("H", bound=Header)


class NoHeader(Header, frozen=True):
    """A request without fields."""


class MemberGroupBody(Body, frozen=True, kw_only=True):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerData


class Request(NamedTuple, Generic[H]):
    """One request with its typed header, and the connection that it came by."""

    command: Command
    header: H
    connection: int
    now_ms: int


class Answer(NamedTuple):
    """What goes back."""

    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None


OK: Final = Answer()


class Names:
    """A name server without its sockets: the route table, the settings, and what they answer."""

    def __init__(
        self,
        *,
        route_limits: RouteLimits | None = None,
        kv_limits: KvLimits | None = None,
        order_in_routes: bool = False,
    ) -> None:
        """`order_in_routes` adds the settings of ordered topics to routes, as `orderMessageEnable` does."""
        self.routes = RouteTable(route_limits)
        self.kv = KvConfig(kv_limits or KvLimits())
        self.order_in_routes = order_in_routes

    def handle(self, command: Command, connection: int, now_ms: int) -> Command | None:
        """The answer to a request; None for one that wants none. Answers are of no use here and are dropped."""
        if command.is_response:
            return None
        answer = self._answer(command, connection, now_ms)
        return None if command.is_oneway else _response(command, answer)

    def _answer(self, command: Command, connection: int, now_ms: int) -> Answer:
        handler = HANDLERS.get(command.code)
        if handler is None:
            return Answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported"
            )
        try:
            header = decode_ext(handler.header_type, command.ext)
            answer = handler.run(self, Request(command, header, connection, now_ms))
        except TrimtabError as exc:  # the peer's mistake, or a limit; our own mistakes are not caught
            return Answer(ResponseCode.SYSTEM_ERROR, remark=str(exc))
        if len(answer.body) > ANSWER_BYTES_MAX:
            return Answer(
                ResponseCode.SYSTEM_ERROR, remark=f"the answer has {len(answer.body)} bytes and fits no frame"
            )
        return answer


def _response(command: Command, answer: Answer) -> Command:
    return Command(
        code=answer.code,
        opaque=command.opaque,
        flag=RESPONSE_FLAG,
        ext=encode_ext(answer.header) if answer.header is not None else {},
        body=answer.body,
        remark=answer.remark and answer.remark[:REMARK_CHARACTERS_MAX],
        serializer=command.serializer,
    )


# --- the table of handlers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handler:
    """A declared function."""

    header_type: type[Header]
    run: Callable[[Names, Request[Any]], Answer]


HANDLERS: Final[dict[int, Handler]] = {}

Run = Callable[[Names, Request[H]], Answer]


def _handles(code: RequestCode, header_type: type[H]) -> Callable[[Run[H]], Run[H]]:
    def declare(run: Run[H]) -> Run[H]:
        assert code not in HANDLERS, f"{code.name} has two handlers"
        HANDLERS[code] = Handler(header_type, run)
        return run

    return declare


# --- brokers ------------------------------------------------------------------------------------------------------


@_handles(RequestCode.REGISTER_BROKER, names.RegisterBroker)
def _register_broker(server: Names, request: Request[names.RegisterBroker]) -> Answer:
    header = request.header
    if header.body_crc32 not in (0, zlib.crc32(request.command.body) & 0x7FFFFFFF):
        return Answer(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
    wrapper = _registered_topics(request.command, compressed=header.compressed)
    registration = Registration(
        place=BrokerPlace(
            cluster=header.cluster_name,
            name=header.broker_name,
            address=header.broker_addr,
            broker_id=header.broker_id,
        ),
        ha_address=header.ha_server_addr,
        topics=wrapper.topic_config_table,
        version=wrapper.data_version,
        silence_ms_max=header.heartbeat_timeout_millis or SILENCE_MS_MAX,
        acting_master=header.enable_acting_master,
    )
    master = server.routes.register(registration, request.connection, request.now_ms)
    ordered = server.kv.namespace(ORDER_TOPICS)
    return Answer(
        header=names.RegisterBrokerResponse(ha_server_addr=master.ha_address, master_addr=master.address)
        if master
        else None,
        body=b"" if ordered is None else encode_body(KVTable(table=ordered)),
    )


def _registered_topics(command: Command, *, compressed: bool) -> TopicConfigSerializeWrapper:
    if not command.body:
        return TopicConfigSerializeWrapper()
    if command.version < Version.V3_0_11:
        return decode_body(TopicConfigSerializeWrapper, command.body)
    body: RegisterBrokerBody = decode_register_body(
        command.body, compressed=compressed, version=command.version
    )
    return body.topic_config_serialize_wrapper


@_handles(RequestCode.UNREGISTER_BROKER, names.BrokerIdentity)
def _unregister_broker(server: Names, request: Request[names.BrokerIdentity]) -> Answer:
    server.routes.unregister(_place(request.header))
    return OK


@_handles(RequestCode.QUERY_DATA_VERSION, names.BrokerIdentity)
def _query_data_version(server: Names, request: Request[names.BrokerIdentity]) -> Answer:
    place = _place(request.header)
    changed = server.routes.has_changed(place, decode_body(DataVersion, request.command.body))
    server.routes.heard(place, request.now_ms)
    known = server.routes.version_of(place)
    return Answer(
        header=names.QueryDataVersionResponse(changed=changed),
        body=b"" if known is None else encode_body(known),
    )


@_handles(RequestCode.BROKER_HEARTBEAT, names.BrokerIdentity)
def _broker_heartbeat(server: Names, request: Request[names.BrokerIdentity]) -> Answer:
    server.routes.heard(_place(request.header), request.now_ms)
    return OK


@_handles(RequestCode.GET_BROKER_MEMBER_GROUP, names.GetBrokerMemberGroup)
def _member_group(server: Names, request: Request[names.GetBrokerMemberGroup]) -> Answer:
    members = server.routes.members(request.header.cluster_name, request.header.broker_name)
    return Answer(body=encode_body(MemberGroupBody(broker_member_group=members)))


@_handles(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader)
def _cluster_info(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.cluster_info())


@_handles(RequestCode.WIPE_WRITE_PERM_OF_BROKER, names.BrokerNameOnly)
def _wipe_write_permission(server: Names, request: Request[names.BrokerNameOnly]) -> Answer:
    wiped = server.routes.wipe_write_permission(request.header.broker_name)
    return Answer(header=names.WipeWritePermResponse(wipe_topic_count=wiped))


@_handles(RequestCode.ADD_WRITE_PERM_OF_BROKER, names.BrokerNameOnly)
def _add_write_permission(server: Names, request: Request[names.BrokerNameOnly]) -> Answer:
    added = server.routes.add_write_permission(request.header.broker_name)
    return Answer(header=names.AddWritePermResponse(add_topic_count=added))


def _place(header: names.BrokerIdentity) -> BrokerPlace:
    return BrokerPlace(cluster=header.cluster_name, name=header.broker_name, address=header.broker_addr)


# --- topics -------------------------------------------------------------------------------------------------------


@_handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, names.GetRouteInfo)
def _route(server: Names, request: Request[names.GetRouteInfo]) -> Answer:
    topic = request.header.topic
    route = server.routes.route(topic)
    if route is None:
        return Answer(
            ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic route info in name server for the topic: {topic}"
        )
    if server.order_in_routes:
        route = msgspec.structs.replace(route, order_topic_conf=server.kv.get(ORDER_TOPICS, topic))
    standard = request.command.version >= Version.V4_9_4 or request.header.accept_standard_json_only
    return Answer(body=encode_body(route, Form.BROWSER if standard else Form.NATIVE))


@_handles(RequestCode.REGISTER_TOPIC_IN_NAMESRV, names.RegisterTopic)
def _register_topic(server: Names, request: Request[names.RegisterTopic]) -> Answer:
    route = decode_body(TopicRouteData, request.command.body)
    server.routes.register_topic(request.header.topic, route.queue_datas)
    return OK


@_handles(RequestCode.DELETE_TOPIC_IN_NAMESRV, names.DeleteTopicInNames)
def _delete_topic(server: Names, request: Request[names.DeleteTopicInNames]) -> Answer:
    server.routes.delete_topic(request.header.topic, request.header.cluster_name)
    return OK


@_handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoHeader)
def _topics(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.topics())


@_handles(RequestCode.GET_TOPICS_BY_CLUSTER, names.ClusterOnly)
def _topics_of_cluster(server: Names, request: Request[names.ClusterOnly]) -> Answer:
    return _body(server.routes.topics_of_cluster(request.header.cluster))


@_handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, NoHeader)
def _system_topics(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.system_topics())


@_handles(RequestCode.GET_UNIT_TOPIC_LIST, NoHeader)
def _unit_topics(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.unit_topics(UNIT_FLAG, UNIT_FLAG))


@_handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, NoHeader)
def _topics_with_unit_subscribers(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.unit_topics(UNIT_SUB_FLAG, UNIT_SUB_FLAG))


@_handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, NoHeader)
def _common_topics_with_unit_subscribers(server: Names, _: Request[NoHeader]) -> Answer:
    return _body(server.routes.unit_topics(UNIT_SUB_FLAG, UNIT_FLAG | UNIT_SUB_FLAG))


# --- settings -----------------------------------------------------------------------------------------------------


@_handles(RequestCode.PUT_KV_CONFIG, names.PutKvConfig)
def _put_kv(server: Names, request: Request[names.PutKvConfig]) -> Answer:
    header = request.header
    server.kv.put(header.namespace, header.key, header.value)
    return OK


@_handles(RequestCode.GET_KV_CONFIG, names.KvConfigKey)
def _get_kv(server: Names, request: Request[names.KvConfigKey]) -> Answer:
    header = request.header
    value = server.kv.get(header.namespace, header.key)
    if value is None:
        return _not_found(f"Namespace: {header.namespace} Key: {header.key}")
    return Answer(header=names.GetKvConfigResponse(value=value))


@_handles(RequestCode.DELETE_KV_CONFIG, names.KvConfigKey)
def _delete_kv(server: Names, request: Request[names.KvConfigKey]) -> Answer:
    server.kv.delete(request.header.namespace, request.header.key)
    return OK


@_handles(RequestCode.GET_KVLIST_BY_NAMESPACE, names.NamespaceOnly)
def _list_kv(server: Names, request: Request[names.NamespaceOnly]) -> Answer:
    table = server.kv.namespace(request.header.namespace)
    if table is None:
        return _not_found(f"Namespace: {request.header.namespace}")
    return _body(KVTable(table=table))


@_handles(RequestCode.UPDATE_NAMESRV_CONFIG, NoHeader)
def _update_settings(_: Names, __: Request[NoHeader]) -> Answer:
    """Whoever can change paths from outside can write files (CVE-2023-37582), so nobody can change anything."""
    return Answer(
        ResponseCode.NO_PERMISSION,
        remark="this name server takes no settings over the network; set them where it is started",
    )


@_handles(RequestCode.GET_NAMESRV_CONFIG, NoHeader)
def _get_settings(server: Names, _: Request[NoHeader]) -> Answer:
    ordered = "true" if server.order_in_routes else "false"
    return Answer(body=f"serverName=trimtab\norderMessageEnable={ordered}\n".encode())


def _not_found(what: str) -> Answer:
    return Answer(ResponseCode.QUERY_NOT_FOUND, remark=f"No config item, {what}")


def _body(body: Body) -> Answer:
    return Answer(body=encode_body(body))
