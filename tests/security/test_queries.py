"""S18: questions that cost much. Each has a bound on what is looked at and on what is answered; others are served in between."""

from collections.abc import Iterator

import pytest

from tests.raw import RawConnection
from tests.security.live import Servers, running
from trimtab.broker.server import BrokerPlan
from trimtab.broker.store import StoreSettings
from trimtab.wire.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.frames import FRAME_BYTES_MAX
from trimtab.wire.messages import decode_messages

MIB = 1 << 20
MESSAGES = 300


def send_fields(topic: str, key: str) -> dict[str, str]:
    return {
        "a": "g", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": f"KEYS\x01{key}\x02UNIQ_KEY\x01{key}\x02TAGS\x01t\x02",
    }  # fmt: skip


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running(BrokerPlan(store=StoreSettings(scan_entries_max=100))) as found:
        with RawConnection(found.broker_address) as client:
            for _ in range(MESSAGES):
                client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Small", "k"), b"x")
            for _ in range(40):
                client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Big", "k"), b"x" * MIB)
        yield found


def query(servers: Servers, **fields: str) -> list[int]:
    asked = {
        "topic": "Small",
        "key": "k",
        "maxNum": "2147483647",
        "beginTimestamp": "0",
        "endTimestamp": str(2**62),
    } | fields
    with RawConnection(servers.broker_address) as client:
        answer = client.ask(RequestCode.QUERY_MESSAGE, asked)
    assert len(answer.body) < FRAME_BYTES_MAX
    return [message.queue_offset for message in decode_messages(answer.body)]


def test_a_key_gives_the_newest_64_messages_however_many_are_asked_for(servers: Servers) -> None:
    assert query(servers) == list(range(MESSAGES - 64, MESSAGES))


def test_a_unique_key_gives_no_more(servers: Servers) -> None:
    assert len(query(servers, _UNIQUE_KEY_QUERY="true")) <= 64


def test_big_messages_are_fewer_so_that_the_answer_fits_a_frame(servers: Servers) -> None:
    found = query(servers, topic="Big")
    assert 1 <= len(found) <= 15


@pytest.mark.parametrize("key", ["k" * 1_025, "k" * 30_000])
def test_a_key_without_end_is_refused(servers: Servers, key: str) -> None:
    asked = {"topic": "Small", "key": key, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    with RawConnection(servers.broker_address) as client:
        assert client.ask(RequestCode.QUERY_MESSAGE, asked).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("index", "count"), [("0", "2147483647"), ("-9223372036854775808", "2147483647"), ("0", "-1")]
)
def test_a_range_of_a_queue_is_bounded(servers: Servers, index: str, count: str) -> None:
    asked = {"topic": "Small", "queueId": "0", "index": index, "count": count}
    with RawConnection(servers.broker_address) as client:
        answer = client.ask(RequestCode.QUERY_CONSUME_QUEUE, asked)
    shown: tuple[ConsumeQueueData, ...] = (
        decode_body(QueryConsumeQueueResponseBody, answer.body).queue_data or ()
    )
    assert len(shown) <= 1_024


@pytest.mark.parametrize("expression", [("TAG", "nobody-has-this-tag"), ("SQL92", "nothing = 'x'")])
@pytest.mark.parametrize(
    "sizes", [{"maxMsgNums": "32"}, {"maxMsgNums": "2147483647", "maxMsgBytes": "2147483647"}]
)
def test_a_filter_that_nothing_passes_looks_at_a_bounded_number_of_messages(
    servers: Servers, expression: tuple[str, str], sizes: dict[str, str]
) -> None:
    kind, text = expression
    asked = {
        "consumerGroup": "g", "topic": "Small", "queueId": "0", "queueOffset": "0", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1", "subscription": text, "expressionType": kind, **sizes,
    }  # fmt: skip
    with RawConnection(servers.broker_address) as client:
        answer = client.ask(RequestCode.PULL_MESSAGE, asked)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert 0 < int(answer.ext["nextBeginOffset"]) <= 100


@pytest.mark.parametrize("sizes", [("2147483647", "2147483647"), ("1000000", "16777216")])
def test_a_pull_gives_no_more_than_fits_a_frame(servers: Servers, sizes: tuple[str, str]) -> None:
    asked = {
        "consumerGroup": "g", "topic": "Big", "queueId": "0", "queueOffset": "0", "maxMsgNums": sizes[0], "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1", "subscription": "*", "maxMsgBytes": sizes[1],
    }  # fmt: skip
    with RawConnection(servers.broker_address) as client:
        answer = client.ask(RequestCode.PULL_MESSAGE, asked)
    assert answer.code == ResponseCode.SUCCESS
    assert len(answer.body) <= 5 * MIB


def test_a_key_is_looked_for_in_a_bounded_number_of_files_and_the_answer_says_where_to_go_on() -> None:
    store = StoreSettings(query_index_files_max=2, checkpoint_bytes=4096, checkpoint_interval_ms=1)
    with running(BrokerPlan(store=store)) as servers, RawConnection(servers.broker_address) as client:
        index = servers.look(lambda: servers.broker.core.store._index)
        number = 0
        while servers.look(lambda: len(index.chunks)) < 4:
            client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Many", f"k{number}"), b"x" * 1024)
            number += 1
        fields = {
            "topic": "Many",
            "key": "none",
            "maxNum": "9",
            "beginTimestamp": "0",
            "endTimestamp": str(2**62),
        }
        answer = client.ask(RequestCode.QUERY_MESSAGE, fields)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert "newest 2 of" in str(answer.remark)
        found = client.ask(RequestCode.QUERY_MESSAGE, fields | {"key": f"k{number - 1}"})
        assert [message.queue_offset for message in decode_messages(found.body)] == [number - 1]
