"""The accounts of a broker through the stock admin tool: at ours and at Apache's, the same commands and the same outcome."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.apache.cluster import ApacheCluster
from tests.interop.mqadmin import MqAdmin, start_mqadmin
from tests.interop.servers import OWN, chosen_servers, eventually
from tests.peers import send_header
from tests.raw import RawConnection
from tests.security.accounts import ADMIN, written
from trimtab import Message, Resolution, blocking
from trimtab.errors import NoPermissionError
from trimtab.testing import Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.signing import Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.apache.conversation import Conversation

TOOL = "4.9.3"
"""5.x has replaced these commands by others."""
FILE = f"""\
globalWhiteRemoteAddresses:
- 10.9.9.9
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""
NEWCOMER = Credentials("a-new-access-key", "a-new-secret-key")


class Place(NamedTuple):
    nameserver: str
    broker: str


@contextmanager
def running(version: str, folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        if version == OWN:
            own = stack.enter_context(Cluster(acl=written(folder, FILE)))
            yield Place(own.nameserver, own.brokers["broker-a"])
            return
        conf = folder / "broker-a" / "conf"
        conf.mkdir(parents=True)
        written(conf, FILE)
        settings = {"aclEnable": "true"}
        apache = stack.enter_context(ApacheCluster(version, directory=folder, broker_settings=settings))
        yield Place(apache.nameserver, apache.brokers[0].address)


@pytest.fixture(scope="module", params=[one for one in chosen_servers() if not one.startswith("5.")])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(str(request.param), tmp_path_factory.mktemp("accounts")) as found:
        yield found


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    """It signs what it asks, as the file in its home says."""
    home = tmp_path_factory.mktemp("tools")
    (home / "conf").mkdir()
    keys = f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(keys)
    with start_mqadmin(TOOL, home) as program:
        yield program


@pytest.fixture
def mqadmin(tool: Conversation, place: Place) -> MqAdmin:
    return MqAdmin(TOOL, tool, place.nameserver)


def may_send(place: Place, who: Credentials | None, topic: str) -> bool:
    with RawConnection(place.broker, who) as client:
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, encode_ext(send_header(topic, 0)), b"body")
        return answer.code == ResponseCode.SUCCESS


def test_the_list_of_addresses_is_kept(mqadmin: MqAdmin, place: Place) -> None:
    """What it is good for differs: see docs/security.md. It comes first: Apache 4.9.3 loses accounts after a deletion."""
    at = ("-b", place.broker)
    assert "success" in mqadmin.good("updateGlobalWhiteAddr", *at, "-g", "10.1.2.3,10.1.3.*")

    def both_are_listed() -> bool:
        listed = mqadmin.good("getAccessConfigSubCommand", *at)
        return "10.1.2.3" in listed and "10.1.3.*" in listed

    eventually(both_are_listed, "both addresses are listed")
    assert not may_send(place, None, "anything")


def test_our_producer_signs_every_kind_of_send_and_is_refused_without_its_keys(place: Place) -> None:
    with blocking.Admin(nameserver=place.nameserver, credentials=ADMIN) as admin:
        admin.create_topic("signed", queues=4)
    with blocking.Producer("pg", nameserver=place.nameserver, credentials=ADMIN) as producer:
        receipts = [producer.send(Message("signed", "büdy".encode(), tag="t", keys=["k"]), key="ü")]
        receipts += producer.send_many([Message("signed", b"%d" % number) for number in range(100)])
        receipts += producer.send_batch([Message("signed", b"a"), Message("signed", b"b")])
        assert {receipt.status for receipt in receipts} == {"SEND_OK"}
        half = producer.send_in_transaction(Message("signed", b"half"), lambda _m, _id: Resolution.COMMIT)
        assert half.receipt.status == "SEND_OK"
    for who in (None, Credentials(ADMIN.access_key, "not-the-secret-key")):
        with (
            blocking.Producer("pg", nameserver=place.nameserver, credentials=who) as stranger,
            pytest.raises(NoPermissionError) as refused,
        ):
            stranger.send(Message("signed", b"x"))
        assert (refused.value.retriable, refused.value.indeterminate) == (False, False)


def test_accounts_come_and_go(mqadmin: MqAdmin, place: Place) -> None:
    at = ("-b", place.broker)
    assert not may_send(place, NEWCOMER, "granted")
    account = (
        "-a",
        NEWCOMER.access_key,
        "-s",
        NEWCOMER.secret_key,
        "-t",
        "granted=PUB,denied=DENY",
        "-m",
        "false",
    )
    assert "success" in mqadmin.good("updateAclConfig", *at, *account)
    eventually(lambda: may_send(place, NEWCOMER, "granted"), "the new account works")
    assert not may_send(place, NEWCOMER, "denied")

    listed = mqadmin.good("getAccessConfigSubCommand", *at)
    assert f"accessKey : {NEWCOMER.access_key}" in listed
    assert "granted=PUB" in listed
    assert place.broker in mqadmin.good("clusterAclConfigVersion", *at)

    assert "success" in mqadmin.good("deleteAccessConfig", *at, "-a", NEWCOMER.access_key)
    eventually(lambda: not may_send(place, NEWCOMER, "granted"), "the account is gone")
