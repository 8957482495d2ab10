"""Commits that carry the epoch of a lease: a former holder's is refused, everybody else's is taken."""

import pytest

from tests.unit.broker.driver import Client, Driver
from trimtab.balance.locks import LEASE_MS
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerConnectionAndLeases, LockBatchResponseBody
from trimtab.wire.bodies.locks import LeaseBatchResponseBody
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupAndLeases, UpdateConsumerOffset

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]
COMMIT_BY_PULL = 1 | 4


def setting() -> tuple[Driver, Client, Client]:
    broker = Driver()
    first, second = broker.connect(), broker.connect()
    for queue_id in range(4):
        first.send("T", queue_id=queue_id)
    return broker, first, second


def locked(client: Client, client_id: str, *queues: MessageQueue) -> dict[MessageQueue, int]:
    answer = decode_body(LeaseBatchResponseBody, client.lock("g", client_id, *queues).body)
    assert answer.lease_epochs is not None
    return dict(zip(answer.lock_ok_mq_set, answer.lease_epochs, strict=True))


def commit(client: Client, offset: int, epoch: int | None, queue_id: int = 0) -> Command:
    header = UpdateConsumerOffset(
        consumer_group="g", topic="T", queue_id=queue_id, commit_offset=offset, lease_epoch=epoch
    )
    return client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def test_every_granted_queue_comes_with_its_epoch_and_a_renewal_keeps_it() -> None:
    broker, first, second = setting()
    epochs = locked(first, "a", *QUEUES)
    assert list(epochs) == QUEUES
    assert len(set(epochs.values())) == 4
    broker.advance(1_000)
    assert locked(first, "a", *QUEUES) == epochs
    assert locked(second, "b", *QUEUES) == {}


def test_a_stock_client_reads_the_answer_as_before() -> None:
    _, first, _ = setting()
    body = first.lock("g", "a", *QUEUES[:2]).body
    assert decode_body(LockBatchResponseBody, body).lock_ok_mq_set == tuple(QUEUES[:2])
    assert b'"leaseEpochs":[' in body


def test_a_former_holders_commit_is_refused_and_says_who_holds_the_queue() -> None:
    broker, first, second = setting()
    old = locked(first, "a", QUEUES[0])[QUEUES[0]]
    assert commit(first, 3, old).code == ResponseCode.SUCCESS
    broker.advance(60_100, step_ms=1_000)
    new = locked(second, "b", QUEUES[0])[QUEUES[0]]
    assert new > old
    assert commit(second, 9, new).code == ResponseCode.SUCCESS
    answer = commit(first, 4, old)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "b of group g" in (answer.remark or "")
    assert broker.core.offsets.get("g", "T", 0) == 9


def test_a_former_holder_is_refused_also_when_its_successor_has_let_go() -> None:
    broker, first, second = setting()
    old = locked(first, "a", QUEUES[0])[QUEUES[0]]
    broker.core.leases.unlock("g", "a", [QUEUES[0]])
    new = locked(second, "b", QUEUES[0])[QUEUES[0]]
    commit(second, 9, new)
    broker.core.leases.unlock("g", "b", [QUEUES[0]])
    broker.advance(200_000, step_ms=10_000)
    late = broker.connect()
    assert commit(late, 4, old).code == ResponseCode.ILLEGAL_OPERATION
    assert commit(late, 10, new).code == ResponseCode.SUCCESS


def test_who_sends_no_epoch_is_believed() -> None:
    broker, first, second = setting()
    locked(second, "b", QUEUES[0])
    assert commit(first, 4, None).code == ResponseCode.SUCCESS
    assert broker.core.offsets.get("g", "T", 0) == 4


def test_other_queues_and_groups_are_not_touched() -> None:
    _, first, second = setting()
    old = locked(first, "a", QUEUES[1])[QUEUES[1]]
    locked(second, "b", QUEUES[0])
    assert commit(first, 4, old, queue_id=1).code == ResponseCode.SUCCESS
    assert commit(first, 4, old, queue_id=2).code == ResponseCode.SUCCESS


def test_a_commit_inside_a_pull_is_judged_alike() -> None:
    broker, first, second = setting()
    old = locked(first, "a", QUEUES[0])[QUEUES[0]]
    broker.core.leases.unlock("g", "a", [QUEUES[0]])
    new = locked(second, "b", QUEUES[0])[QUEUES[0]]

    def pull(client: Client, offset: int, epoch: int | None, flags: int = COMMIT_BY_PULL) -> int:
        header = client.pull_header(
            "T", consumer_group="g", sys_flag=flags, commit_offset=offset, lease_epoch=epoch
        )
        return client.ask(RequestCode.PULL_MESSAGE, header).code

    assert pull(second, 5, new) == ResponseCode.SUCCESS
    assert pull(first, 1, old) == ResponseCode.ILLEGAL_OPERATION
    assert broker.core.offsets.get("g", "T", 0) == 5
    assert pull(first, 1, old, flags=4) == ResponseCode.SUCCESS
    assert pull(first, 2, None) == ResponseCode.SUCCESS
    assert broker.core.offsets.get("g", "T", 0) == 2


def test_epochs_grow_over_a_restart() -> None:
    broker, first, _ = setting()
    old = locked(first, "a", QUEUES[0])[QUEUES[0]]
    broker.restart(crash=True, after_ms=50)
    new = locked(broker.connect(), "b", QUEUES[0])[QUEUES[0]]
    assert new > old
    assert commit(broker.connect(), 1, old).code == ResponseCode.ILLEGAL_OPERATION


def test_a_broker_tells_since_when_it_has_forgotten_no_lease() -> None:
    broker, first, _ = setting()

    def memory_ms(client: Client) -> int | None:
        client.heartbeat("a", consumes={"g": ["T"]})
        header = GroupAndLeases(consumer_group="g", with_leases=True)
        answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return decode_body(ConsumerConnectionAndLeases, answer.body).lease_memory_ms

    assert memory_ms(first) == LEASE_MS, "nobody had a lease before the store was made"
    broker.restart()
    broker.advance(1_500)
    assert memory_ms(broker.connect()) == 1_500


@pytest.mark.parametrize("epoch", ["x", "", "1.5", "9" * 30])
def test_an_epoch_that_is_no_number_is_refused(epoch: str) -> None:
    _, first, _ = setting()
    header = UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=1)
    answer = first.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header, ext={"leaseEpoch": epoch})
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_the_memory_of_former_holders_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.balance.locks.REMEMBERED_MAX", 10)
    _, first, _ = setting()
    many = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(100)]
    locked(first, "a", *many)
    assert commit(first, 1, 0, queue_id=99).code == ResponseCode.ILLEGAL_OPERATION
    assert commit(first, 1, 0, queue_id=1).code == ResponseCode.SUCCESS
