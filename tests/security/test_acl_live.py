"""S9 over sockets: a broker and a name server that ask who asks."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raw import RawConnection
from tests.security.accounts import (
    ADMIN,
    BILLING,
    FORGER,
    ORDERS,
    READER,
    STRANGER,
    WRITER,
    acl_in,
    sample_acl,
)
from tests.security.live import Servers, running
from trimtab.broker.server import BrokerPlan
from trimtab.wire.bodies import AclConfig, ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode, Version
from trimtab.wire.commands import encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.signing import Credentials


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl), guard=acl) as found:
        yield found


def send_fields(topic: str) -> dict[str, str]:
    return {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def heartbeat(group: str, *topics: str) -> bytes:
    subscriptions = tuple(SubscriptionData(topic=topic, sub_string="*") for topic in topics)
    consumer = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    return encode_body(
        HeartbeatData(
            client_id="me",
            consumer_data_set=(consumer,),
            producer_data_set=(ProducerData(group_name="anybody"),),
        )
    )


def test_a_permitted_client_works_and_others_are_told_why_they_do_not(servers: Servers) -> None:
    address = servers.broker_address
    with (
        RawConnection(address, WRITER) as writer,
        RawConnection(address, READER) as reader,
        RawConnection(address) as nobody,
    ):
        assert writer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").code == ResponseCode.SUCCESS
        denied = writer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("secrets"), b"x")
        assert (denied.code, denied.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "AclException: 'the-writer-key' has no PUB permission for topic 'secrets'; grant it under topicPerms of the account",
        )
        assert "has no PUB" in str(reader.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").remark)
        queue = {"topic": ORDERS, "queueId": "0"}
        assert reader.ask(RequestCode.GET_MAX_OFFSET, queue).ext["offset"] == "1"
        assert "not signed" in str(nobody.ask(RequestCode.GET_MAX_OFFSET, queue).remark)
        assert "not signed" in str(nobody.ask(9_999).remark)
        assert reader.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "secrets" not in servers.look(
        lambda: list(servers.broker.core.topics.snapshot().topic_config_table)
    )


def test_a_batch_and_a_reply_need_the_permission_too(servers: Servers) -> None:
    with RawConnection(servers.broker_address, READER) as reader:
        for code in (RequestCode.SEND_BATCH_MESSAGE,):
            assert "has no PUB" in str(reader.ask(code, send_fields(ORDERS) | {"m": "true"}, b"x").remark)


def test_a_heartbeat_is_judged_by_what_is_in_it(servers: Servers) -> None:
    code = RequestCode.HEART_BEAT
    with (
        RawConnection(servers.broker_address, READER) as reader,
        RawConnection(servers.broker_address, STRANGER) as stranger,
    ):
        good = reader.ask(code, body=heartbeat(BILLING, ORDERS, f"%RETRY%{BILLING}"))
        assert good.code == ResponseCode.SUCCESS
        for body in (
            heartbeat("other", ORDERS),
            heartbeat(BILLING, ORDERS, "secrets"),
            heartbeat(BILLING, "%RETRY%x"),
        ):
            assert "AclException" in str(reader.ask(code, body=body).remark)
        assert "AclException" in str(stranger.ask(code, body=heartbeat(BILLING)).remark)
    groups = servers.look(lambda: [group.group_name for group in servers.broker.core.groups])
    assert "other" not in groups


def test_a_refused_one_way_request_changes_nothing_and_is_not_answered(servers: Servers) -> None:
    fields = {"consumerGroup": BILLING, "topic": ORDERS, "queueId": "0", "commitOffset": "7"}
    with (
        RawConnection(servers.broker_address, STRANGER) as stranger,
        RawConnection(servers.names_address, STRANGER) as other,
    ):
        command = stranger.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields, flag=ONEWAY_FLAG)
        stranger.send(encode_command(command))
        assert stranger.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        wipe = other.request(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, flag=ONEWAY_FLAG
        )
        other.send(encode_command(wipe))
        assert other.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
        route = other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "SELF_TEST_TOPIC"})
    assert servers.look(lambda: servers.broker.core.offsets.get(BILLING, ORDERS, 0)) is None
    assert b'"perm":6' in route.body


def test_a_newer_client_hears_a_code_of_its_own(servers: Servers) -> None:
    with RawConnection(servers.broker_address, version=Version.V5_3_3) as newer:
        assert newer.ask(RequestCode.GET_MAX_OFFSET, {}).code == ResponseCode.NO_PERMISSION
    with RawConnection(servers.names_address, version=Version.V5_3_3) as newer:
        assert newer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.NO_PERMISSION


def test_the_broker_signs_its_registration_and_its_goodbye(tmp_path: Path) -> None:
    acl = acl_in(tmp_path)
    with running(BrokerPlan(acl=acl), guard=acl) as servers:
        names = servers.names.names
        assert servers.look(lambda: list(names.routes.cluster_info().broker_addr_table)) == ["broker-a"]
        servers.run(servers.broker.stop())
        assert servers.look(lambda: list(names.routes.cluster_info().broker_addr_table)) == []


@pytest.mark.parametrize("who", [None, FORGER, WRITER])
def test_a_broker_that_is_no_admin_cannot_register(
    who: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    with running(BrokerPlan(credentials=who), guard=sample_acl()) as servers:
        assert servers.look(lambda: servers.names.names.routes.cluster_info().broker_addr_table) == {}
    assert "refused the registration: AclException" in caplog.text


def test_at_the_start_the_operator_hears_the_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acl = acl_in(tmp_path)
    acl.warnings = ("something is odd",)
    with caplog.at_level(logging.WARNING), running(BrokerPlan(acl=acl), guard=acl):
        assert "broker-a: something is odd" in caplog.text


# --- accounts over the wire


def test_an_admin_sees_every_account_and_no_secret(servers: Servers) -> None:
    with RawConnection(servers.broker_address, ADMIN) as admin:
        answer = admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    config = decode_body(AclConfig, answer.body)
    accounts = {one.access_key: one for one in config.plain_access_configs or ()}
    assert set(accounts) == {ADMIN.access_key, READER.access_key, WRITER.access_key, STRANGER.access_key}
    assert accounts[READER.access_key].topic_perms == (f"{ORDERS}=SUB",)
    assert {one.secret_key for one in accounts.values()} == {"***"}


def test_an_admin_sees_the_version_of_the_file_and_not_where_it_lies(
    servers: Servers, tmp_path: Path
) -> None:
    with RawConnection(servers.broker_address, ADMIN) as admin:
        ext = admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO).ext
    assert json.loads(ext["allAclFileVersion"])["plain_acl.yml"] == json.loads(ext["version"])
    assert (ext["brokerName"], ext["clusterName"]) == ("broker-a", "DefaultCluster")
    assert str(tmp_path) not in str(ext)


def test_an_account_is_made_changed_and_removed(servers: Servers, tmp_path: Path) -> None:
    new = Credentials("a-new-account", "a-new-secret-4711")
    fields = {
        "accessKey": new.access_key,
        "secretKey": new.secret_key,
        "admin": "false",
        "topicPerms": f"{ORDERS}=PUB,b=SUB",
    }
    address = servers.broker_address
    with RawConnection(address, ADMIN) as admin, RawConnection(address, new) as user:
        assert "no account" in str(user.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").remark)
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields).code == ResponseCode.SUCCESS
        assert user.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").code == ResponseCode.SUCCESS
        with RawConnection(servers.names_address, new) as asker:
            assert asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
        # The mask of the shown secret, sent back, leaves the secret alone.
        again = {
            "accessKey": new.access_key,
            "secretKey": "***",
            "admin": "false",
            "topicPerms": f"{ORDERS}=DENY",
        }
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, again).code == ResponseCode.SUCCESS
        assert "has no PUB" in str(user.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").remark)
        gone = {"accessKey": new.access_key}
        assert admin.ask(RequestCode.DELETE_ACL_CONFIG, gone).code == ResponseCode.SUCCESS
        assert "no account" in str(user.ask(RequestCode.SEND_MESSAGE_V2, send_fields(ORDERS), b"x").remark)
        assert admin.ask(RequestCode.DELETE_ACL_CONFIG, gone).code == ResponseCode.DELETE_ACL_CONFIG_FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["plain_acl.yml"]


@pytest.mark.parametrize(
    ("code", "fields", "refused"),
    [
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "short", "secretKey": "x" * 16}, 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "a-good-key"}, 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "a-good-key", "secretKey": "x" * 16, "topicPerms": "t"}, 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "a-good-key", "secretKey": "x" * 16, "defaultTopicPerm": "ALL"}, 209),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": ADMIN.access_key, "admin": "false"}, 209),
        (RequestCode.DELETE_ACL_CONFIG, {"accessKey": ADMIN.access_key}, 210),
        (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "../../etc/passwd"}, 211),
    ],
)  # fmt: skip
def test_a_bad_change_is_refused_and_the_file_stays(
    servers: Servers, tmp_path: Path, code: int, fields: dict[str, str], refused: int
) -> None:
    before = (tmp_path / "plain_acl.yml").read_bytes()
    with RawConnection(servers.broker_address, ADMIN) as admin:
        assert admin.ask(code, fields).code == refused
    assert (tmp_path / "plain_acl.yml").read_bytes() == before


def test_the_white_list_is_kept_for_apaches_tools_and_spares_nobody(servers: Servers, tmp_path: Path) -> None:
    with (
        RawConnection(servers.broker_address, ADMIN) as admin,
        RawConnection(servers.broker_address) as nobody,
    ):
        fields = {"globalWhiteAddrs": "127.0.0.*,10.1.2.{3,4}"}
        assert admin.ask(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields).code == ResponseCode.SUCCESS
        answer = admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert decode_body(AclConfig, answer.body).global_white_addrs == ("127.0.0.*", "10.1.2.{3,4}")
        refused = nobody.ask(RequestCode.GET_MAX_OFFSET, {"topic": ORDERS, "queueId": "0"})
        assert "white-listed address spares no signature" in str(refused.remark)


@pytest.mark.parametrize("code", [50, 51, 52, 53, 54])
def test_without_accounts_there_is_nothing_to_show_or_change(code: int) -> None:
    fields = {"accessKey": "a-good-key", "secretKey": "x" * 16, "globalWhiteAddrs": ""}
    with running() as servers, RawConnection(servers.broker_address) as anybody:
        answer = anybody.ask(code, fields)
    assert answer.code != ResponseCode.SUCCESS
    assert "without accounts" in str(answer.remark)
