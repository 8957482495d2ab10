"""S3: names of topics and groups are data. Whatever they are, nothing is made outside the store, and twins stay apart."""

import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.raw import RawConnection
from tests.security.live import Servers, running, tree
from trimtab.broker.server import BrokerPlan
from trimtab.broker.store import StoreSettings
from trimtab.io.disk import DiskError, MemoryDisk, RealDisk
from trimtab.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData, SubscriptionGroupConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body

LEGAL = string.ascii_letters + string.digits + "%|_-"

NASTY = [
    "..", ".", "/", "../x", "a/b", "/etc/passwd", "a\0b", "\0", "%2e%2e%2f", "..%2f", "CON", "NUL", "nul.txt", "COM1",
    "aux", "~", "~root", "$HOME", "`id`", "$(id)", "a;b", "a b", "\n", "a\r\nb", "a\tb", "*", "?", "C:\\x", "\\\\host\\share",
    "ａ", "\u202e", "\ud800", "topic\u0000", "-rf", "--help", "x" * 127, "x" * 128, "x" * 4_000, "é" * 64, "", " ", "LOCK",
    "commitlog", "checkpoint", "%RETRY%../x", "%DLQ%/x", "Orders", "orders", "ORDERS",
]  # fmt: skip

names = (
    st.sampled_from(NASTY)
    | st.text(max_size=140)
    | st.text(alphabet=LEGAL + "./\\", min_size=1, max_size=130)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outside")


@pytest.fixture(scope="module")
def servers(place: Path) -> Iterator[Servers]:
    plan = BrokerPlan(disk=RealDisk(place / "store"), store=StoreSettings(flush="async"))
    with running(plan) as found:
        yield found


def is_legal(name: str, length_max: int) -> bool:
    return 0 < len(name) <= length_max and all(letter in LEGAL for letter in name)


def outside(place: Path) -> dict[str, tuple[int, int]]:
    """All that is not inside the store."""
    return {name: about for name, about in tree(place).items() if name.split("/")[0] != "store"}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names)
def test_a_topic_by_any_name_leaves_no_trace_outside_the_store(
    servers: Servers, place: Path, name: str
) -> None:
    before = outside(place)
    send = {"a": "g", "b": wire_safe(name), "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0"}
    create = {
        "topic": wire_safe(name), "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    with RawConnection(servers.broker_address) as client:
        sent = client.ask(RequestCode.SEND_MESSAGE_V2, send, b"x")
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
        client.ask(RequestCode.GET_MAX_OFFSET, {"topic": wire_safe(name), "queueId": "0"})
        client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": wire_safe(name)})
    if not is_legal(wire_safe(name), 127):
        assert sent.code != ResponseCode.SUCCESS
    assert outside(place) == before
    assert not any(part in path for path in tree(place) for part in ("orders", "x" * 100))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names)
def test_a_group_by_any_name_leaves_no_trace_outside_the_store(
    servers: Servers, place: Path, name: str
) -> None:
    before = outside(place)
    group = wire_safe(name)
    subscription = SubscriptionData(topic="TopicTest", sub_string="*")
    body = encode_body(
        HeartbeatData(
            client_id="c",
            consumer_data_set=(ConsumerData(group_name=group, subscription_data_set=(subscription,)),),
        )
    )
    with RawConnection(servers.broker_address) as client:
        beaten = client.ask(RequestCode.HEART_BEAT, body=body)
        config = encode_body(SubscriptionGroupConfig(group_name=group))
        client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
        offset = {"consumerGroup": group, "topic": "TopicTest", "queueId": "0", "commitOffset": "1"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)
    if not is_legal(group, 255):
        assert beaten.code != ResponseCode.SUCCESS
    assert outside(place) == before


def test_twins_that_differ_in_case_alone_are_two_topics(servers: Servers) -> None:
    with RawConnection(servers.broker_address) as client:
        for number, topic in enumerate(("CaseTwin", "casetwin", "CASETWIN"), start=1):
            fields = {"a": "g", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0"}
            for _ in range(number):
                assert client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.SUCCESS
        ends = [
            client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}).ext["offset"]
            for topic in ("CaseTwin", "casetwin", "CASETWIN")
        ]
    assert ends == ["1", "2", "3"]


@settings(max_examples=300)
@given(name=names.filter(lambda name: "/" in name or "\0" in name or ".." in name or len(name) > 90))
def test_the_disk_itself_opens_nothing_that_is_not_a_plain_name(name: str) -> None:
    disk = MemoryDisk()
    try:
        disk.open(name, create=True)
    except DiskError:
        return
    assert name.count("/") <= 1
    assert ".." not in name


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "log").symlink_to(tmp_path)
    with pytest.raises(DiskError, match="leads out of"):
        RealDisk(tmp_path / "store").open("log/file.bin", create=True)
    assert not (tmp_path / "file.bin").exists()


def wire_safe(name: str) -> str:
    """Half a surrogate pair cannot be written as UTF-8 by an honest client."""
    return name.encode(errors="replace").decode()
