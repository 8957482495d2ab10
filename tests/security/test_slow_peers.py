"""S5 and S8: peers that are slow, silent or greedy. They meet a limit; the others do not notice them.

Time is put forward by hand, and limits are small: nothing here depends on how fast the machine is.
"""

import contextlib
from collections.abc import Iterator

import pytest

from tests.raw import RawConnection
from tests.security.live import MovableClock, Servers, resident_bytes, running, until
from trimtab.broker.server import BrokerPlan
from trimtab.broker.settings import BrokerSettings
from trimtab.io.serving import FrameServer, ServingLimits
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerData,
    SubscriptionData,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

MIB = 1 << 20
QUEUE = {"topic": "TopicTest", "queueId": "0"}


def send_fields(topic: str) -> dict[str, str]:
    return {"a": "g", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0"}


def sends(client: RawConnection, body: bytes) -> bool:
    return (
        client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("TopicTest"), body).code == ResponseCode.SUCCESS
    )


def pull_fields(
    offset: int = 0, *, sys_flag: int = 4, suspend_ms: int = 0, topic: str = "TopicTest"
) -> dict[str, str]:
    return {
        "consumerGroup": "g", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": str(sys_flag), "commitOffset": "0", "suspendTimeoutMillis": str(suspend_ms), "subVersion": "1",
        "subscription": "*", "maxMsgBytes": str(MIB),
    }  # fmt: skip


def server_of(servers: Servers, which: str) -> FrameServer:
    return servers.broker._server if which == "broker" else servers.names._server


def connections_of(servers: Servers, which: str) -> int:
    server = server_of(servers, which)
    return servers.look(lambda: len(server.connections))


@pytest.fixture(params=["broker", "names"])
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def servers(clock: MovableClock) -> Iterator[Servers]:
    with running(BrokerPlan(), clock=clock) as found:
        yield found


def address_of(servers: Servers, which: str) -> str:
    return servers.broker_address if which == "broker" else servers.names_address


def is_served(client: RawConnection) -> bool:
    return client.ask(9_999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# --- S5


def test_peers_that_ask_nothing_are_cut_off_after_ten_seconds(
    servers: Servers, clock: MovableClock, which: str
) -> None:
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(RawConnection(address_of(servers, which)))
        assert is_served(honest)
        before = connections_of(servers, which)
        silent = [stack.enter_context(RawConnection(address_of(servers, which))) for _ in range(200)]
        until(lambda: connections_of(servers, which) == before + 200, "all connected")
        clock.ahead_ms += 10_001
        servers.look(server_of(servers, which).sweep)
        assert all(one.is_closed_by_the_server() for one in silent)
        assert is_served(honest)


def test_a_frame_that_drips_is_cut_off_after_thirty_seconds(
    servers: Servers, clock: MovableClock, which: str
) -> None:
    server = server_of(servers, which)
    with RawConnection(address_of(servers, which)) as slow:
        assert is_served(slow)
        frame = encode_command(Command(code=9_999, opaque=1, body=b"x" * 100))
        for at in range(8):
            slow.send(frame[at : at + 1])
            until(
                lambda at=at: servers.look(
                    lambda: any(p._decoder.pending_bytes == at + 1 for p in server._protocols.values())
                ),  # type: ignore[misc]
                "the byte came",
            )
            clock.ahead_ms += 3_000  # with what the test itself takes this must stay below the limit
            servers.look(server.sweep)
        assert servers.look(lambda: any(p._decoder.pending_bytes == 8 for p in server._protocols.values()))
        clock.ahead_ms += 6_100
        servers.look(server.sweep)
        assert slow.is_closed_by_the_server()


def test_a_peer_that_falls_silent_is_cut_off_after_two_minutes(
    servers: Servers, clock: MovableClock, which: str
) -> None:
    server = server_of(servers, which)
    with (
        RawConnection(address_of(servers, which)) as silent,
        RawConnection(address_of(servers, which)) as busy,
    ):
        assert is_served(silent)
        for _ in range(4):
            assert is_served(busy)
            clock.ahead_ms += 30_100
            servers.look(server.sweep)
        assert silent.is_closed_by_the_server()
        assert is_served(busy)


@pytest.mark.parametrize(
    "limits",
    [
        ServingLimits(connections_max=5),
        ServingLimits(connections_per_host_max=5),
    ],
    ids=["in all", "of one address"],
)
def test_no_more_connections_than_allowed(limits: ServingLimits) -> None:
    with running(BrokerPlan(limits=limits)) as servers, contextlib.ExitStack() as stack:
        taken = [stack.enter_context(RawConnection(servers.broker_address)) for _ in range(5)]
        assert all(map(is_served, taken))
        with RawConnection(servers.broker_address) as sixth:
            assert sixth.is_closed_by_the_server()
        assert all(map(is_served, taken))
        taken[0].wire.close()
        until(lambda: connections_of(servers, "broker") == 4, "one is gone")
        assert is_served(stack.enter_context(RawConnection(servers.broker_address)))


# --- S8

SMALL = ServingLimits(connections_max=1_000, unread_bytes_high=64 << 10, unread_bytes_max=MIB)


def unread_bytes(servers: Servers) -> int:
    """The most that any peer has left unread."""
    server = servers.broker._server
    return servers.look(
        lambda: (
            max(one._transport.get_write_buffer_size() for one in server.connections.values())
            if server.connections
            else 0
        )
    )


@pytest.fixture
def full_topic(clock: MovableClock) -> Iterator[Servers]:
    with running(BrokerPlan(limits=SMALL), clock=clock) as servers:
        with RawConnection(servers.broker_address) as producer:
            for _ in range(8):
                assert sends(producer, b"x" * 100_000)
        yield servers


def greedy_pulls(client: RawConnection, count: int) -> bytes:
    return b"".join(
        encode_command(client.request(RequestCode.PULL_MESSAGE, pull_fields())) for _ in range(count)
    )


def test_a_consumer_that_never_reads_is_not_read_from_and_then_cut_off(
    full_topic: Servers, clock: MovableClock
) -> None:
    servers, most, before = full_topic, 0, resident_bytes()
    with RawConnection(servers.broker_address) as greedy, RawConnection(servers.broker_address) as honest:
        for _ in range(1_000):
            greedy.send(greedy_pulls(greedy, 1))
            most = max(most, unread_bytes(servers))
            assert is_served(honest)
        assert SMALL.unread_bytes_high < most <= SMALL.unread_bytes_max + MIB
        assert resident_bytes() - before < 64 * MIB
        for _ in range(5):
            clock.ahead_ms += 30_000
            assert is_served(honest)
            servers.look(servers.broker._server.sweep)
        until(lambda: unread_bytes(servers) == 0, "it is cut off")
        assert is_served(honest)


def test_a_consumer_that_asks_for_everything_at_once_is_cut_off(full_topic: Servers) -> None:
    servers, before = full_topic, resident_bytes()
    with RawConnection(servers.broker_address) as honest, RawConnection(servers.broker_address) as greedy:
        assert is_served(honest)
        assert is_served(greedy)
        greedy.send(greedy_pulls(greedy, 200))
        until(lambda: connections_of(servers, "broker") == 1, "it is cut off")
        assert resident_bytes() - before < 64 * MIB
        assert is_served(honest)


def test_a_producer_that_never_waits_is_slowed_down_and_loses_nothing() -> None:
    with running(BrokerPlan(limits=SMALL)) as servers, RawConnection(servers.broker_address) as eager:
        frames = [
            encode_command(eager.request(RequestCode.SEND_MESSAGE_V2, send_fields("TopicTest"), b"x" * 64))
            for _ in range(100)
        ]
        batch = b"".join(frames)
        eager.wire.setblocking(False)
        sent = 0
        stalled = 0
        with RawConnection(servers.broker_address) as honest:
            while stalled < 50 and sent < 64 * MIB:
                try:
                    sent += eager.wire.send(batch[sent % len(batch) :])
                    stalled = 0
                except BlockingIOError:
                    stalled += 1
                    assert is_served(honest)
                assert unread_bytes(servers) <= SMALL.unread_bytes_max
        assert stalled == 50, "it was never slowed down"
        eager.wire.setblocking(True)
        eager.wire.settimeout(60)
        whole, rest = divmod(sent, len(batch))
        eager.wire.settimeout(60)
        answered = 0
        expected = whole * 100 + _frames_in(frames, rest)
        while answered < expected:
            answered += eager.receive().code == ResponseCode.SUCCESS
        offset = servers.look(lambda: servers.broker.core.store.max_offset("TopicTest", 0))
        assert offset == expected


def _frames_in(frames: list[bytes], count: int) -> int:
    number = 0
    for frame in frames:
        count -= len(frame)
        if count < 0:
            break
        number += 1
    return number


def test_no_more_topics_and_groups_than_allowed() -> None:
    with running(BrokerPlan(settings=BrokerSettings(topics_max=40, groups_max=20))) as servers:
        with RawConnection(servers.broker_address) as client:
            assert sends(client, b"x")
            refused = [
                client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(f"t{number}"), b"x").code
                != ResponseCode.SUCCESS
                for number in range(200)
            ]
            assert refused[-1]
            for number in range(100):
                last = client.ask(RequestCode.PULL_MESSAGE, pull_fields() | {"consumerGroup": f"g{number}"})
            assert "its limit" in str(last.remark)
            assert sends(client, b"x")
        core = servers.broker.core
        assert servers.look(lambda: len(core.topics)) <= 40
        assert servers.look(lambda: len(list(core.groups))) <= 20


def test_no_more_held_pulls_than_allowed() -> None:
    with running(BrokerPlan(settings=BrokerSettings(held_pulls_max=20))) as servers:
        with RawConnection(servers.broker_address) as client, RawConnection(servers.broker_address) as honest:
            assert sends(honest, b"x")
            for _ in range(50):
                command = client.request(
                    RequestCode.PULL_MESSAGE, pull_fields(1, sys_flag=6, suspend_ms=3_600_000)
                )
                client.send(encode_command(command))
            at_once = [client.receive().code for _ in range(30)]
            assert at_once == [ResponseCode.PULL_NOT_FOUND] * 30
            assert servers.look(lambda: len(servers.broker.core.polls)) == 20
            assert honest.ask(RequestCode.PULL_MESSAGE, pull_fields()).code == ResponseCode.SUCCESS
            assert sends(honest, b"x")
            assert [client.receive().code for _ in range(20)] == [ResponseCode.SUCCESS] * 20
        until(lambda: connections_of(servers, "broker") == 0, "both are gone")
        assert servers.look(lambda: len(servers.broker.core.polls)) == 0


def test_a_big_message_for_many_held_pulls_is_not_copied_for_all_at_once() -> None:
    with (
        running(BrokerPlan(limits=SMALL)) as servers,
        RawConnection(servers.broker_address) as greedy,
        RawConnection(servers.broker_address) as honest,
    ):
        assert sends(honest, b"x")
        for _ in range(500):
            held = greedy.request(RequestCode.PULL_MESSAGE, pull_fields(1, sys_flag=6, suspend_ms=3_600_000))
            greedy.send(encode_command(held))
        until(lambda: servers.look(lambda: len(servers.broker.core.polls)) == 500, "all are held")
        before = resident_bytes()
        assert sends(honest, b"x" * (MIB // 2))
        assert resident_bytes() - before < 64 * MIB
        until(lambda: connections_of(servers, "broker") == 1, "the greedy one is cut off")


def test_an_honest_client_may_ask_for_much_more_at_once_than_it_can_read() -> None:
    """As a consumer of a thousand queues does: the answers come as fast as it reads, and it is not cut off."""
    pulls = 300
    with (
        running(BrokerPlan(limits=SMALL)) as servers,
        RawConnection(servers.broker_address) as client,
    ):
        assert sends(client, b"x" * (MIB // 4))
        asked = [client.request(RequestCode.PULL_MESSAGE, pull_fields()) for _ in range(pulls)]
        client.send(b"".join(map(encode_command, asked)))
        codes = [client.receive().code for _ in range(pulls)]
        assert codes == [ResponseCode.SUCCESS] * pulls


def test_held_pulls_go_with_their_connection() -> None:
    with running() as servers:
        with RawConnection(servers.broker_address) as client:
            assert sends(client, b"x")
            for _ in range(50):
                command = client.request(
                    RequestCode.PULL_MESSAGE, pull_fields(1, sys_flag=6, suspend_ms=3_600_000)
                )
                client.send(encode_command(command))
            until(lambda: servers.look(lambda: len(servers.broker.core.polls)) == 50, "all are held")
        until(lambda: servers.look(lambda: len(servers.broker.core.polls)) == 0, "none is held")


def heartbeat(producers: int = 0, consumers: int = 0, topics: int = 0) -> bytes:
    subscriptions = tuple(SubscriptionData(topic=f"t{number}", sub_string="*") for number in range(topics))
    return encode_body(
        HeartbeatData(
            client_id="c",
            producer_data_set=tuple(ProducerData(group_name=f"p{number}") for number in range(producers)),
            consumer_data_set=tuple(
                ConsumerData(group_name=f"c{number}", subscription_data_set=subscriptions)
                for number in range(consumers)
            ),
        )
    )


@pytest.mark.parametrize(
    "body",
    [heartbeat(producers=1_001), heartbeat(consumers=1_001), heartbeat(consumers=1, topics=1_001)],
    ids=["producers", "consumers", "topics"],
)
def test_a_heartbeat_without_end_is_refused(servers: Servers, body: bytes) -> None:
    with RawConnection(servers.broker_address) as client:
        answer = client.ask(RequestCode.HEART_BEAT, body=body)
    assert "at most 1000" in str(answer.remark)
    core = servers.broker.core
    assert servers.look(lambda: (len(core.producers), len(core.consumers))) == (0, 0)


@pytest.mark.parametrize("auto_create_groups", [True, False])
def test_no_more_connected_groups_than_allowed(auto_create_groups: bool) -> None:
    settings = BrokerSettings(groups_max=20, auto_create_groups=auto_create_groups)
    with running(BrokerPlan(settings=settings)) as servers, RawConnection(servers.broker_address) as client:
        for number in range(200):
            body = encode_body(
                HeartbeatData(
                    client_id="c",
                    producer_data_set=(ProducerData(group_name=f"p{number}"),),
                    consumer_data_set=(ConsumerData(group_name=f"c{number}"),),
                )
            )
            client.ask(RequestCode.HEART_BEAT, body=body)
        core = servers.broker.core
        producers, consumers = servers.look(lambda: (len(core.producers), len(core.consumers)))
        assert producers <= 20
        assert consumers <= 20
        assert is_served(client)


def test_no_more_leases_than_allowed_but_those_that_are_can_be_renewed() -> None:
    def lock(group: str, queues: range) -> bytes:
        wanted = tuple(MessageQueue("TopicTest", "broker-a", number) for number in queues)
        return encode_body(LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=wanted))

    with (
        running(BrokerPlan(settings=BrokerSettings(leases_max=100))) as servers,
        RawConnection(servers.broker_address) as client,
    ):
        assert (
            client.ask(RequestCode.LOCK_BATCH_MQ, body=lock("honest", range(8))).code == ResponseCode.SUCCESS
        )
        for number in range(100):
            last = client.ask(RequestCode.LOCK_BATCH_MQ, body=lock(f"greedy-{number}", range(16)))
        assert "100 queues are leased" in str(last.remark)
        assert servers.look(lambda: len(servers.broker.core.leases)) <= 100
        renewed = client.ask(RequestCode.LOCK_BATCH_MQ, body=lock("honest", range(8)))
        assert len(decode_body(LockBatchResponseBody, renewed.body).lock_ok_mq_set) == 8


def test_no_more_offsets_than_allowed_but_those_that_are_can_be_changed() -> None:
    with running() as servers, RawConnection(servers.broker_address) as client:
        offsets = servers.broker.core.offsets
        offsets._entries_max = 50
        for number in range(100):
            fields = {
                "consumerGroup": f"g{number % 3}",
                "topic": f"t{number % 7}",
                "queueId": str(number),
                "commitOffset": "1",
            }
            last = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert "no offset is kept beyond the 50" in str(last.remark)
        assert servers.look(lambda: len(offsets)) == 50
        first = {"consumerGroup": "g0", "topic": "t0", "queueId": "0", "commitOffset": "2"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, first).code == ResponseCode.SUCCESS
        assert servers.look(lambda: sum(map(len, offsets.snapshot().offset_table.values()))) == 50
