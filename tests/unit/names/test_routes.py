"""Each rule of the name server as a sentence. Requests go in as commands, so handlers and tables are tested together."""

import zlib
from typing import Any, TypeVar

import msgspec
import pytest

from trimtab.names.handlers import ANSWER_BYTES_MAX, HANDLERS, Names
from trimtab.names.kv import KvConfig, KvFileError, KvLimits
from trimtab.names.routes import RouteLimits
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.lists import KVTable, TopicList
from trimtab.wire.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    encode_register_body,
)
from trimtab.wire.bodies.route import ClusterInfo, QueueData, TopicRouteData
from trimtab.wire.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from trimtab.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import BINARY_HEADER

B = TypeVar("B", bound=Body)


class Talk:
    """Speaks to a name server over one of many connections."""

    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self.now_ms = 1_000

    def ask(
        self,
        code: int,
        *,
        body: bytes = b"",
        version: int = Version.V4_9_3,
        connection: int = 1,
        **ext: Any,
    ) -> Command:
        fields = {name: str(value) for name, value in ext.items()}
        command = Command(code=code, opaque=7, ext=fields, body=body, version=version)
        reply = self.names.handle(command, connection, self.now_ms)
        assert reply is not None
        assert reply.is_response
        assert reply.opaque == 7
        return reply

    def get(self, as_type: type[B], code: int, **ext: Any) -> B:
        reply = self.ask(code, **ext)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return decode_body(as_type, reply.body)

    def register(
        self,
        name: str = "a",
        *topics: TopicConfig | str,
        broker_id: int = 0,
        address: str | None = None,
        cluster: str = "C",
        version: int = 1,
        connection: int = 1,
        compressed: bool = False,
        header_version: int = Version.V4_9_3,
        state_version: int | None = None,
        **ext: Any,
    ) -> Command:
        configs = [TopicConfig(topic_name=each) if isinstance(each, str) else each for each in topics]
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={config.topic_name: config for config in configs},
            data_version=DataVersion(timestamp=5, counter=version, state_version=state_version),
        )
        body = encode_register_body(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper),
            compressed=compressed,
            version=header_version,
        )
        fields: dict[str, Any] = {
            "brokerName": name,
            "brokerAddr": address or f"{name}:{10911 + broker_id}",
            "clusterName": cluster,
            "haServerAddr": f"{name}:{10912 + broker_id}",
            "brokerId": broker_id,
            "compressed": "true" if compressed else "false",
            "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
            **ext,
        }
        return self.ask(
            RequestCode.REGISTER_BROKER, body=body, version=header_version, connection=connection, **fields
        )

    def route(self, topic: str, **ext: Any) -> TopicRouteData:
        return self.get(TopicRouteData, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **ext)

    def knows(self, topic: str) -> bool:
        reply = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        assert reply.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        return reply.code == ResponseCode.SUCCESS

    def permission(self, topic: str) -> int:
        (queues,) = self.route(topic).queue_datas
        return queues.perm

    def cluster(self) -> ClusterInfo:
        return self.get(ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)

    def topics(self, code: int = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, **ext: Any) -> set[str]:
        return set(self.get(TopicList, code, **ext).topic_list)

    def sign_off(self, name: str = "a", address: str = "a:10911", broker_id: int = 0) -> None:
        self.ask(
            RequestCode.UNREGISTER_BROKER,
            brokerName=name,
            brokerAddr=address,
            clusterName="C",
            brokerId=broker_id,
        )

    def query_version(self, version: int, state_version: int | None = None) -> Command:
        return self.ask(
            RequestCode.QUERY_DATA_VERSION,
            body=encode_body(DataVersion(timestamp=5, counter=version, state_version=state_version)),
            brokerName="a",
            brokerAddr="a:10911",
            clusterName="C",
            brokerId=0,
        )


@pytest.fixture
def talk() -> Talk:
    return Talk()


# --- registering


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("header_version", [Version.V4_9_3, Version.V5_3_3])
def test_a_registered_topic_has_a_route(talk: Talk, compressed: bool, header_version: int) -> None:
    topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6)
    talk.register("a", topic, "U", compressed=compressed, header_version=header_version)
    route = talk.route("T")
    assert route.queue_datas == (QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=8, perm=6),)
    assert [(broker.broker_name, broker.cluster, broker.broker_addrs) for broker in route.broker_datas] == [
        ("a", "C", {0: "a:10911"})
    ]


def test_an_unknown_topic_is_answered_with_17(talk: Talk) -> None:
    reply = talk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert "T" in (reply.remark or "")


def test_a_topic_of_two_brokers_has_both_in_its_route(talk: Talk) -> None:
    talk.register("a", "T")
    talk.register("b", "T")
    route = talk.route("T")
    assert [queue.broker_name for queue in route.queue_datas] == ["a", "b"]
    assert [broker.broker_name for broker in route.broker_datas] == ["a", "b"]


def test_a_registration_keeps_topics_that_it_does_not_name(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("a", "V", version=2)
    assert talk.topics() == {"T", "U", "V"}


def test_a_changed_topic_needs_a_changed_version(talk: Talk) -> None:
    talk.register("a", TopicConfig(topic_name="T", perm=6), "U")
    talk.register("a", TopicConfig(topic_name="T", perm=4), "U")
    assert talk.permission("T") == 6
    talk.register("a", TopicConfig(topic_name="T", perm=4), "U", version=2)
    assert talk.permission("T") == 4


def test_a_new_topic_needs_no_changed_version(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("a", "T", "U", "V")
    assert talk.knows("V")


def test_the_full_table_after_an_early_increment_counts_as_a_change(talk: Talk) -> None:
    talk.register("a", TopicConfig(topic_name="T", perm=2), version=3)
    assert talk.query_version(3).ext == {"changed": "true"}
    talk.register("a", TopicConfig(topic_name="T", perm=6), "U", version=3)
    assert talk.permission("T") == 6
    assert talk.query_version(3).ext == {"changed": "false"}


def test_slaves_of_4_9_bring_no_topics(talk: Talk) -> None:
    talk.register("a", "T", "U", broker_id=1)
    assert talk.topics() == set()
    assert talk.cluster().broker_addr_table["a"].broker_addrs == {1: "a:10912"}


def test_the_smallest_slave_of_5_brings_topics_while_there_is_no_master(talk: Talk) -> None:
    talk.register("a", "T", "U", broker_id=1, enableActingMaster="false")
    assert talk.permission("T") == 6
    talk.register("a", "V", "W", broker_id=2, enableActingMaster="false")
    assert not talk.knows("V")


def test_an_acting_master_brings_its_topics_without_write_permission(talk: Talk) -> None:
    talk.register("a", "T", "U", broker_id=1, enableActingMaster="true")
    assert talk.permission("T") == 4


def test_a_slave_learns_its_master(talk: Talk) -> None:
    assert talk.register("a", "T").ext == {}
    reply = talk.register("a", broker_id=1)
    assert reply.ext == {"haServerAddr": "a:10912", "masterAddr": "a:10911"}


def test_a_slave_without_master_learns_nothing(talk: Talk) -> None:
    assert talk.register("a", broker_id=1).ext == {}


def test_an_address_has_one_id_only(talk: Talk) -> None:
    talk.register("a", broker_id=1, address="a:1")
    talk.register("a", "T", broker_id=0, address="a:1")
    assert talk.cluster().broker_addr_table["a"].broker_addrs == {0: "a:1"}


def test_a_new_address_takes_over_an_id(talk: Talk) -> None:
    talk.register("a", "T", address="a:1")
    talk.register("a", "T", address="a:2")
    assert talk.cluster().broker_addr_table["a"].broker_addrs == {0: "a:2"}


def test_a_broker_that_was_voted_out_cannot_come_back(talk: Talk) -> None:
    talk.register("a", "T", "U", address="a:2", state_version=9)
    talk.register("a", "T", "U", address="a:1", state_version=8)
    assert talk.cluster().broker_addr_table["a"].broker_addrs == {0: "a:2"}


def test_a_wrong_checksum_is_refused(talk: Talk) -> None:
    reply = talk.register("a", "T", bodyCrc32=1)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert not talk.knows("T")


def test_a_checksum_of_zero_is_not_checked(talk: Talk) -> None:
    talk.register("a", "T", bodyCrc32=0)
    assert talk.knows("T")


def test_a_registration_without_body_has_no_topics(talk: Talk) -> None:
    fields: dict[str, Any] = {
        "brokerName": "a",
        "brokerAddr": "a:1",
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": 0,
    }
    assert talk.ask(RequestCode.REGISTER_BROKER, **fields).code == ResponseCode.SUCCESS
    assert "a" in talk.cluster().broker_addr_table


def test_brokers_before_3_0_11_send_the_topics_alone(talk: Talk) -> None:
    table = {"T": TopicConfig(topic_name="T")}
    fields: dict[str, Any] = {
        "brokerName": "a",
        "brokerAddr": "a:1",
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": 0,
    }
    body = encode_body(TopicConfigSerializeWrapper(topic_config_table=table))
    talk.ask(RequestCode.REGISTER_BROKER, body=body, version=30, **fields)
    assert talk.knows("T")


def test_an_unreadable_registration_is_answered_and_changes_nothing(talk: Talk) -> None:
    fields: dict[str, Any] = {
        "brokerName": "a",
        "brokerAddr": "a:1",
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": 0,
    }
    for body, compressed in ((b"{", "false"), (b"\xff\x00", "false"), (b"no zlib", "true")):
        reply = talk.ask(RequestCode.REGISTER_BROKER, body=body, compressed=compressed, **fields)
        assert reply.code == ResponseCode.SYSTEM_ERROR
    assert talk.cluster().broker_addr_table == {}


def test_a_missing_field_is_answered_with_its_name(talk: Talk) -> None:
    reply = talk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (reply.remark or "")


# --- going


def test_the_last_address_takes_topics_and_cluster_with_it(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("b", "U", "V", cluster="D")
    talk.sign_off()
    assert talk.topics() == {"U", "V"}
    assert talk.cluster().cluster_addr_table == {"D": ("b",)}


def test_a_slave_that_goes_leaves_the_topics(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("a", broker_id=1)
    talk.sign_off(address="a:10912", broker_id=1)
    assert talk.route("T").broker_datas[0].broker_addrs == {0: "a:10911"}


def test_signing_off_an_old_address_does_not_hurt_its_successor(talk: Talk) -> None:
    talk.register("a", "T", "U", address="a:1")
    talk.register("a", "T", "U", address="a:2")
    talk.sign_off(address="a:1")
    assert talk.route("T").broker_datas[0].broker_addrs == {0: "a:2"}


def test_a_master_that_goes_leaves_its_topics_read_only_to_the_acting_one(talk: Talk) -> None:
    talk.register("a", "T", "U", enableActingMaster="true")
    talk.register("a", broker_id=1, enableActingMaster="true")
    talk.sign_off()
    assert talk.permission("T") == 4
    assert talk.route("T").broker_datas[0].broker_addrs == {1: "a:10912"}


def test_a_silent_broker_expires_and_its_connection_is_to_be_closed(talk: Talk) -> None:
    talk.register("a", "T", connection=3)
    assert talk.names.routes.expire(talk.now_ms + 120_000) == []
    assert talk.names.routes.expire(talk.now_ms + 120_001) == [3]
    assert not talk.knows("T")
    assert talk.names.routes.expire(talk.now_ms + 120_001) == []


def test_a_broker_may_ask_for_a_shorter_silence(talk: Talk) -> None:
    talk.register("a", "T", heartbeatTimeoutMillis=5_000)
    assert talk.names.routes.expire(talk.now_ms + 5_001) == [1]


@pytest.mark.parametrize("sign", ["register", "query", "heartbeat"])
def test_each_sign_of_life_keeps_a_broker(talk: Talk, sign: str) -> None:
    talk.register("a", "T", "U")
    talk.now_ms += 100_000
    if sign == "register":
        talk.register("a", "T", "U")
    elif sign == "query":
        talk.query_version(1)
    else:
        talk.ask(RequestCode.BROKER_HEARTBEAT, brokerName="a", brokerAddr="a:10911", clusterName="C")
    assert talk.names.routes.expire(talk.now_ms + 100_000) == []
    assert talk.knows("T")


def test_a_sign_of_life_of_a_stranger_registers_nobody(talk: Talk) -> None:
    talk.query_version(1)
    talk.ask(RequestCode.BROKER_HEARTBEAT, brokerName="a", brokerAddr="a:10911", clusterName="C")
    assert talk.cluster() == ClusterInfo()


def test_a_closed_connection_takes_all_its_brokers(talk: Talk) -> None:
    talk.register("a", "T", "U", connection=1)
    talk.register("b", "V", "W", connection=1)
    talk.register("c", "X", "Y", connection=2)
    talk.names.routes.connection_closed(1)
    assert talk.topics() == {"X", "Y"}


def test_the_connection_of_the_last_registration_counts(talk: Talk) -> None:
    talk.register("a", "T", "U", connection=1)
    talk.register("a", "T", "U", connection=2)
    talk.names.routes.connection_closed(1)
    assert talk.knows("T")
    talk.names.routes.connection_closed(2)
    assert not talk.knows("T")


# --- data versions


def test_an_unknown_broker_has_changed_and_gets_no_version(talk: Talk) -> None:
    reply = talk.query_version(1)
    assert (reply.ext, reply.body) == ({"changed": "true"}, b"")


def test_an_equal_version_has_not_changed(talk: Talk) -> None:
    talk.register("a", "T", "U", version=1)
    reply = talk.query_version(1, state_version=0)
    assert reply.ext == {"changed": "false"}
    assert decode_body(DataVersion, reply.body) == DataVersion(timestamp=5, counter=1)
    assert talk.query_version(2).ext == {"changed": "true"}
    assert talk.query_version(1, state_version=1).ext == {"changed": "true"}


# --- permissions and topics


def test_wiped_permissions_stay_wiped_until_the_version_changes(talk: Talk) -> None:
    talk.register("a", TopicConfig(topic_name="T", perm=7), "U")
    talk.register("b", "V")
    assert talk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a").ext == {"wipeTopicCount": "2"}
    assert (talk.permission("T"), talk.permission("U"), talk.permission("V")) == (5, 4, 6)
    talk.register("a", TopicConfig(topic_name="T", perm=7), "U")
    assert talk.permission("T") == 5
    talk.register("a", TopicConfig(topic_name="T", perm=7), "U", version=2)
    assert talk.permission("T") == 7


def test_added_permissions_are_read_and_write(talk: Talk) -> None:
    talk.register("a", TopicConfig(topic_name="T", perm=1), "U")
    assert talk.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a").ext == {"addTopicCount": "2"}
    assert talk.permission("T") == 6
    assert talk.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="x").ext == {"addTopicCount": "0"}


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("b", "T", "U", cluster="D")
    talk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="D")
    assert [queue.broker_name for queue in talk.route("T").queue_datas] == ["a"]
    talk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="U")
    assert not talk.knows("U")
    assert talk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="nothing").code == ResponseCode.SUCCESS


def test_a_topic_may_be_registered_alone_on_known_brokers(talk: Talk) -> None:
    talk.register("a", "T")
    body = encode_body(TopicRouteData(queue_datas=(QueueData(broker_name="a", perm=6),)))
    talk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="V", body=body)
    assert talk.permission("V") == 6
    strange = encode_body(
        TopicRouteData(queue_datas=(QueueData(broker_name="a"), QueueData(broker_name="stranger")))
    )
    talk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="W", body=strange)
    assert not talk.knows("W")


# --- lists


def test_topics_are_listed_by_cluster(talk: Talk) -> None:
    talk.register("a", "T", "U")
    talk.register("b", "U", "V", cluster="D")
    assert talk.topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="D") == {"U", "V"}
    assert talk.topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="nowhere") == set()


def test_system_topics_are_called_like_clusters_and_brokers(talk: Talk) -> None:
    talk.register("a", "T")
    talk.register("b", "T", cluster="D")
    listed = talk.get(TopicList, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert set(listed.topic_list) == {"C", "a", "D", "b"}
    assert listed.broker_addr == "a:10911"


def test_unit_topics_are_told_by_their_flags(talk: Talk) -> None:
    talk.register("a", *(TopicConfig(topic_name=f"flag{flag}", topic_sys_flag=flag) for flag in range(4)))
    assert talk.topics(RequestCode.GET_UNIT_TOPIC_LIST) == {"flag1", "flag3"}
    assert talk.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"flag2", "flag3"}
    assert talk.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"flag2"}


def test_the_members_of_a_broker_are_all_its_addresses(talk: Talk) -> None:
    talk.register("a", "T")
    talk.register("a", broker_id=1)
    reply = talk.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a")
    assert reply.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a:10911",1:"a:10912"},"brokerName":"a","cluster":"C"}}'
    )


# --- the JSON of routes


def test_old_clients_get_bare_keys_and_new_ones_quoted_ascii(talk: Talk) -> None:
    talk.register("bröker", "T")
    old = talk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", version=Version.V4_9_3)
    assert '{0:"bröker:10911"}'.encode() in old.body
    for new in (
        talk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", version=Version.V4_9_4),
        talk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", acceptStandardJsonOnly="true"),
    ):
        assert b'{"0":"br\\u00F6ker:10911"}' in new.body
        assert msgspec.json.decode(new.body)["queueDatas"][0]["brokerName"] == "bröker"


# --- settings


def put(talk: Talk, key: str = "k", value: str = "v", namespace: str = "n") -> Command:
    return talk.ask(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)


def test_a_setting_can_be_put_got_listed_and_deleted(talk: Talk) -> None:
    assert put(talk).code == ResponseCode.SUCCESS
    assert talk.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k").ext == {"value": "v"}
    assert talk.get(KVTable, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").table == {"k": "v"}
    talk.ask(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k")
    assert talk.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k").code == ResponseCode.QUERY_NOT_FOUND
    assert talk.get(KVTable, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").table == {}


def test_what_was_never_set_is_not_found(talk: Talk) -> None:
    assert talk.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k").code == ResponseCode.QUERY_NOT_FOUND
    assert talk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").code == ResponseCode.QUERY_NOT_FOUND
    assert talk.ask(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k").code == ResponseCode.SUCCESS


def test_brokers_learn_the_ordered_topics_when_they_register(talk: Talk) -> None:
    assert talk.register("a", "T").body == b""
    put(talk, key="T", value="a:4", namespace="ORDER_TOPIC_CONFIG")
    assert decode_body(KVTable, talk.register("a", "T").body).table == {"T": "a:4"}


def test_routes_carry_the_order_only_if_asked_to(talk: Talk) -> None:
    for names, expected in ((Names(), None), (Names(order_in_routes=True), "a:4")):
        other = Talk(names)
        other.register("a", "T")
        put(other, key="T", value="a:4", namespace="ORDER_TOPIC_CONFIG")
        assert other.route("T").order_topic_conf == expected


def test_settings_survive_as_json() -> None:
    before = KvConfig()
    before.put("n", "k", 'a "quoted" ä')
    before.put("n", "gone", "x")
    before.delete("n", "gone")
    before.put("m", "k", "")
    after = KvConfig()
    after.load_json(before.to_json())
    assert (after.namespace("n"), after.namespace("m")) == ({"k": 'a "quoted" ä'}, {"k": ""})


def test_the_stock_file_can_be_read() -> None:
    settings = KvConfig()
    settings.load_json(b'{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4"}\n\t}\n}')
    assert settings.get("ORDER_TOPIC_CONFIG", "T") == "a:4"


def test_a_broken_file_is_an_error_and_not_an_empty_one() -> None:
    with pytest.raises(KvFileError):
        KvConfig().load_json(b'{"configTable":')


def test_nothing_can_be_set_over_the_network(talk: Talk) -> None:
    reply = talk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/etc/passwd\n")
    assert reply.code == ResponseCode.NO_PERMISSION
    assert talk.ask(RequestCode.GET_NAMESRV_CONFIG).body == b"serverName=trimtab\norderMessageEnable=false\n"


# --- limits


def refused(reply: Command, text: str) -> None:
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert text in (reply.remark or "")


def test_topics_beyond_the_limit_are_refused_and_known_ones_still_served() -> None:
    talk = Talk(Names(route_limits=RouteLimits(topics_max=2)))
    talk.register("a", "T", "U")
    refused(talk.register("a", "T", "U", "V", version=2), "2 are registered")
    assert (
        talk.register("a", TopicConfig(topic_name="T", perm=4), "U", version=2).code == ResponseCode.SUCCESS
    )
    assert talk.permission("T") == 4
    body = encode_body(TopicRouteData(queue_datas=(QueueData(broker_name="a"),)))
    refused(talk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="W", body=body), "2 are registered")


def test_a_topic_counts_by_its_own_name_not_by_its_key() -> None:
    talk = Talk(Names(route_limits=RouteLimits(topics_max=1)))
    talk.register("a", "T")
    wrapper = TopicConfigAndMappingSerializeWrapper(topic_config_table={"T": TopicConfig(topic_name="other")})
    body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))
    fields: dict[str, Any] = {
        "brokerName": "b",
        "brokerAddr": "b:1",
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": 0,
    }
    refused(talk.ask(RequestCode.REGISTER_BROKER, body=body, **fields), "1 are registered")


def test_brokers_addresses_and_clusters_have_limits() -> None:
    talk = Talk(Names(route_limits=RouteLimits(brokers_max=2, addresses_per_broker_max=2)))
    talk.register("a", "T")
    talk.register("a", broker_id=1)
    refused(talk.register("a", broker_id=2), "2 addresses")
    talk.register("b", "T")
    refused(talk.register("c", "T"), "2 are registered")
    talk.register("a", "T", cluster="D")
    refused(talk.register("a", "T", cluster="E"), "2 are known")


def test_long_names_are_refused() -> None:
    talk = Talk(Names(route_limits=RouteLimits(name_characters_max=10)))
    refused(talk.register("a", "T" * 11), "11 characters")
    refused(talk.register("a", "T", cluster="C" * 11), "11 characters")
    assert talk.topics() == set()


def test_settings_have_limits() -> None:
    limits = KvLimits(entries_max=3, value_bytes_max=10, total_bytes_max=20)
    talk = Talk(Names(kv_limits=limits))
    refused(put(talk, value="x" * 11), "exceeds 10")
    put(talk, key="k1", value="x" * 10)
    refused(put(talk, key="k2", value="x" * 10), "more than 20 bytes")
    put(talk, key="k2", value="x")
    refused(put(talk, key="k3", value=""), "3 settings are kept")
    assert put(talk, key="k1", value="y").code == ResponseCode.SUCCESS


def test_a_broken_limit_is_the_sum_of_what_is_there() -> None:
    settings = KvConfig(KvLimits(total_bytes_max=100))
    for _ in range(50):
        settings.put("n", "k", "x" * 60)
        settings.delete("n", "k")
    settings.put("n", "k", "x" * 60)


def test_an_answer_that_fits_no_frame_becomes_an_error(monkeypatch: pytest.MonkeyPatch, talk: Talk) -> None:
    monkeypatch.setattr("trimtab.names.handlers.ANSWER_BYTES_MAX", 10)
    assert ANSWER_BYTES_MAX < 16 << 20
    talk.register("a", "T")
    refused(talk.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "fits no frame")


# --- manners


def test_an_unknown_code_is_answered_as_a_broker_does(talk: Talk) -> None:
    reply = talk.ask(4711)
    assert (reply.code, reply.remark) == (3, " request type 4711 not supported")


def test_a_one_way_request_is_done_and_not_answered(talk: Talk) -> None:
    command = Command(
        code=RequestCode.PUT_KV_CONFIG,
        opaque=1,
        flag=ONEWAY_FLAG,
        ext={"namespace": "n", "key": "k", "value": "v"},
    )
    assert talk.names.handle(command, 1, 0) is None
    assert talk.names.kv.get("n", "k") == "v"


def test_a_response_is_dropped(talk: Talk) -> None:
    assert talk.names.handle(Command(code=103, opaque=1, flag=RESPONSE_FLAG), 1, 0) is None


def test_the_answer_uses_the_encoding_of_the_request(talk: Talk) -> None:
    command = Command(code=RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1, serializer=BINARY_HEADER)
    reply = talk.names.handle(command, 1, 0)
    assert reply is not None
    assert reply.serializer == BINARY_HEADER


def test_every_code_of_a_name_server_has_a_handler() -> None:
    assert sorted(HANDLERS) == [
        *(
            100,
            101,
            102,
            103,
            104,
            105,
            106,
            205,
            206,
            216,
            217,
            219,
            224,
            304,
            311,
            312,
            313,
            318,
            319,
            322,
            327,
        ),
        *(901, 904),
    ]
