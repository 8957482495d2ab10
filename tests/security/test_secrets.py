"""S13: secrets show nowhere, and no peer writes lines of its own into the log."""

import logging
from pathlib import Path

import pytest

from tests.raw import RawConnection
from tests.security.accounts import ADMIN, FORGER, ORDERS, READER, SECRETS, STRANGER, WRITER, acl_in
from tests.security.attacks import headers
from tests.security.live import running
from trimtab.broker.server import BrokerPlan
from trimtab.io.disk import RealDisk
from trimtab.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import encode_command
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.frames import encode_frame

NEW_SECRET = "canary-secret-0815"
FORGED = "x\n2026-01-01 00:00:00 ERROR forged line\r\x1b[31m\x00\u2028"


def test_no_secret_is_in_any_log_answer_or_file_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "conf").mkdir()
    acl = acl_in(tmp_path / "conf")
    answers: list[str] = []
    with running(BrokerPlan(acl=acl, disk=RealDisk(tmp_path / "store")), guard=acl) as servers:
        shown = [
            repr(servers.broker),
            repr(servers.names),
            repr(servers.broker.core),
            repr(servers.broker.plan),
        ]
        for address in (servers.broker_address, servers.names_address):
            for who in (None, ADMIN, READER, WRITER, STRANGER, FORGER):
                with RawConnection(address, who) as client:
                    for code in (*RequestCode, 9_999):
                        if code in (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG):
                            continue
                        try:
                            answers.append(repr(client.ask(code, {"topic": ORDERS, "queueId": "0"})))
                        except ConnectionError:
                            client.connect()
        with RawConnection(servers.broker_address, ADMIN) as admin:
            fields = {"accessKey": "a-new-account", "secretKey": NEW_SECRET}
            answers.append(repr(admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields)))
            answers.append(
                repr(admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields | {"topicPerms": "bad"}))
            )
            answers.append(
                repr(admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, fields | {"accessKey": "bad"}))
            )
            answers.append(repr(admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)))
            answers.append(repr(admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)))
            answers.append(repr(admin.ask(RequestCode.GET_BROKER_CONFIG)))
    told = "\n".join([caplog.text, *answers, *shown])
    assert not [secret for secret in (*SECRETS, NEW_SECRET) if secret in told]
    assert NEW_SECRET in (tmp_path / "conf" / "plain_acl.yml").read_text()
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            stored = path.read_bytes()
            assert not [secret for secret in (*SECRETS, NEW_SECRET) if secret.encode() in stored], path


def test_no_peer_writes_a_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    subscription = SubscriptionData(topic=FORGED, sub_string=FORGED, expression_type="SQL92")
    consumer = ConsumerData(group_name=FORGED, subscription_data_set=(subscription,))
    beat = encode_body(HeartbeatData(client_id=FORGED, consumer_data_set=(consumer,)))
    forged_fields = dict.fromkeys(
        ("topic", "b", "consumerGroup", "group", "clientID", "key", "namespace", "brokerName", "brokerAddr", "clusterName",
         "AccessKey", "queueId", "Signature", "msgId", FORGED), FORGED,
    )  # fmt: skip
    with running() as servers:
        for address in (servers.broker_address, servers.names_address):
            for code in (*RequestCode, 9_999):
                with RawConnection(address) as client:
                    attack = [
                        encode_command(client.request(code, forged_fields, body))
                        for body in (beat, FORGED.encode())
                    ]
                    # In one piece: the server may close at the first of them, and nobody can write after that.
                    client.send(b"".join([*attack, encode_frame(FORGED.encode())]))
                    assert client.is_closed_by_the_server()
            for frame in headers().values():
                with RawConnection(address) as client:
                    client.send(frame + b"\xff" * 8)
                    assert client.is_closed_by_the_server()
    assert caplog.records
    for record in caplog.records:
        assert record.getMessage().isprintable(), repr(record.getMessage())
        assert len(record.getMessage()) < 2_000
