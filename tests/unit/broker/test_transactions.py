"""Transactions: half messages, their ends, the questions to silent producers, and all of it over restarts."""

import random
from typing import Any

import msgspec
import pytest

from tests.unit.broker.driver import WALL_MS, Client, Driver, HeldExecutor
from trimtab.broker import names, transactions
from trimtab.broker.settings import BrokerSettings
from trimtab.broker.transactions import GROUP
from trimtab.sim.disk import SimDisk
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.admin import ResumeCheckHalfMessage, TopicOnly
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import CheckTransactionState
from trimtab.wire.headers.send import EndTransaction, SendMessageResponse
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import StoredMessage, decode_messages

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
CHECK = RequestCode.CHECK_TRANSACTION_STATE
MINUTE_MS = 60_000


def half(client: Client, body: bytes = b"body", topic: str = "T", **properties: Any) -> SendMessageResponse:
    return client.send(topic, body, **{"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1", **properties})


def ending(receipt: SendMessageResponse, how: int, **changes: Any) -> EndTransaction:
    fields: dict[str, Any] = {
        "producer_group": "pg",
        "tran_state_table_offset": receipt.queue_offset,
        "commit_log_offset": decode_offset_message_id(receipt.msg_id).physical_offset,
        "commit_or_rollback": how,
        "msg_id": "U1",
    }
    return EndTransaction(**(fields | changes))


def end(client: Client, receipt: SendMessageResponse, how: int, **changes: Any) -> Command:
    return client.ask(RequestCode.END_TRANSACTION, ending(receipt, how, **changes))


def checks(client: Client) -> list[tuple[CheckTransactionState, StoredMessage]]:
    """What the broker asked, and the message it showed."""
    found = []
    for command in client.received(CHECK):
        assert command.is_oneway
        (message,) = decode_messages(command.body)
        found.append((decode_ext(CheckTransactionState, command.ext), message))
    return found


def answer_check(client: Client, asked: CheckTransactionState, how: int) -> None:
    header = EndTransaction(
        producer_group="pg",
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=how,
        msg_id=asked.msg_id or "",
        from_transaction_check=True,
    )
    client.request(RequestCode.END_TRANSACTION, header, is_oneway=True)


def producer(broker: Driver) -> Client:
    client = broker.connect()
    client.heartbeat("p@1", produces=["pg"])
    return client


def minutes(broker: Driver, count: int, client: Client | None = None) -> None:
    for _ in range(count * 2):
        broker.advance(MINUTE_MS // 2, step_ms=1_000)
        if client is not None:
            client.heartbeat("p@1", produces=["pg"])


# --- ending


def test_a_half_message_is_seen_by_nobody_until_it_is_committed() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = half(client, queue_id=2, TAGS="eu", KEYS="k1")
    assert client.pull("T", 2) == []
    assert end(client, receipt, COMMIT).code == ResponseCode.SUCCESS
    (message,) = client.pull("T", 2)
    assert (message.body, message.tag, message.keys, message.unique_id) == (b"body", "eu", ("k1",), "U1")
    assert (message.topic, message.queue_id, message.sys_flag & 0xC) == ("T", 2, COMMIT)
    assert message.prepared_transaction_offset == decode_offset_message_id(receipt.msg_id).physical_offset
    assert len(broker.core.transactions) == 0


def test_a_rolled_back_message_is_never_seen_and_an_op_says_so() -> None:
    broker = Driver()
    client = producer(broker)
    half(client)
    receipt = half(client)
    assert end(client, receipt, ROLLBACK).code == ResponseCode.SUCCESS
    assert client.pull("T") == []
    (op,) = client.pull(names.OP_HALF_TOPIC)
    assert (op.body, op.tag, op.queue_id) == (b"1", "d", 0)
    minutes(broker, 3, client)
    assert client.pull("T") == []


def test_an_end_is_one_way_and_then_not_answered() -> None:
    broker = Driver()
    client = producer(broker)
    opaque = client.request(RequestCode.END_TRANSACTION, ending(half(client), COMMIT), is_oneway=True)
    assert len(client.pull("T")) == 1
    assert opaque not in client.answers


def test_a_producer_that_does_not_know_is_left_alone() -> None:
    broker = Driver()
    client = producer(broker)
    opaque = client.request(RequestCode.END_TRANSACTION, ending(half(client), UNKNOWN))
    assert opaque not in client.answers
    assert len(broker.core.transactions) == 1


@pytest.mark.parametrize("how", [4, 1, -1])
def test_an_end_that_is_none_is_refused(how: int) -> None:
    broker = Driver()
    client = producer(broker)
    answer = client.ask(RequestCode.END_TRANSACTION, ending(half(client), how))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(broker.core.transactions) == 1


def test_a_second_end_does_nothing() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = half(client)
    end(client, receipt, COMMIT)
    assert end(client, receipt, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert end(client, receipt, ROLLBACK).code == ResponseCode.SYSTEM_ERROR
    assert len(client.pull("T")) == 1


def test_two_ends_in_one_read_are_one() -> None:
    disk = HeldExecutor()
    disk.is_holding = False
    broker = Driver(sync_executor=disk)
    client = producer(broker)
    receipt = half(client)
    disk.is_holding = True
    client.request(RequestCode.END_TRANSACTION, ending(receipt, COMMIT), is_oneway=True)
    client.request(RequestCode.END_TRANSACTION, ending(receipt, COMMIT), is_oneway=True)
    disk.is_holding = False
    disk.run()
    assert len(client.pull("T")) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_group": "other"}, {"tran_state_table_offset": 7}, {"tran_state_table_offset": -1}, {"commit_log_offset": 0},
        {"commit_log_offset": -5}, {"commit_log_offset": 10**17},
    ],
)  # fmt: skip
def test_an_end_that_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    broker = Driver()
    client = producer(broker)
    assert end(client, half(client), COMMIT, **changes).code == ResponseCode.SYSTEM_ERROR
    assert client.pull("T") == []
    assert len(broker.core.transactions) == 1


def test_an_ordinary_message_cannot_be_committed_to_another_topic() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = client.send("T", PGROUP="pg", REAL_TOPIC="U", REAL_QID="0")
    client.send("U")
    assert end(client, receipt, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert len(client.pull("U")) == 1


def test_a_half_message_cannot_pretend_to_be_another_ones_copy() -> None:
    broker = Driver()
    client = producer(broker)
    first = half(client, b"first")
    half(client, b"forged", TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="14")
    assert len(broker.core.transactions) == 2
    end(client, first, COMMIT)
    assert client.bodies("T") == [b"first"]


def test_a_transaction_is_not_delayed() -> None:
    broker = Driver()
    client = producer(broker)
    end(client, half(client, DELAY="18", TIMER_DELAY_SEC="3600"), COMMIT)
    assert len(client.pull("T")) == 1


def test_transactions_can_be_forbidden_and_have_a_limit() -> None:
    for settings, code in (
        (BrokerSettings(reject_transactions=True), ResponseCode.NO_PERMISSION),
        (BrokerSettings(open_transactions_max=0), ResponseCode.SYSTEM_BUSY),
    ):
        client = Driver(settings).connect()
        answer = client.ask(
            RequestCode.SEND_MESSAGE_V2, client.send_header("T", TRAN_MSG="true", PGROUP="pg")
        )
        assert answer.code == code


# --- asking


def test_a_silent_producer_is_asked_with_the_offsets_of_the_new_copy() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = half(client, queue_id=1, TAGS="eu")
    minutes(broker, 1, client)
    ((asked, message),) = checks(client)
    assert asked.tran_state_table_offset == 1
    assert asked.commit_log_offset != decode_offset_message_id(receipt.msg_id).physical_offset
    assert (asked.msg_id, asked.transaction_id) == ("U1", "U1")
    assert decode_offset_message_id(asked.offset_msg_id or "").physical_offset == asked.commit_log_offset
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 1, 1)
    assert message.physical_offset == asked.commit_log_offset
    assert (message.body, message.tag, message.properties["PGROUP"]) == (b"body", "eu", "pg")
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    answer_check(client, asked, COMMIT)
    (committed,) = client.pull("T", 1)
    assert committed.prepared_transaction_offset == asked.commit_log_offset
    minutes(broker, 3, client)
    assert checks(client) == []
    assert len(client.pull("T", 1)) == 1


def test_an_answer_of_unknown_means_that_it_is_asked_again_and_a_rollback_ends_it() -> None:
    broker = Driver()
    client = producer(broker)
    half(client)
    for times in range(1, 4):
        minutes(broker, 1, client)
        ((asked, message),) = checks(client)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == str(times)
        answer_check(client, asked, UNKNOWN if times < 3 else ROLLBACK)
    minutes(broker, 2, client)
    assert checks(client) == []
    assert client.pull("T") == []
    assert len(broker.core.transactions) == 0


def test_a_late_end_of_the_first_copy_ends_all_of_it() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = half(client)
    minutes(broker, 2, client)
    asked = [each for each, _ in checks(client)]
    assert len(asked) == 2
    assert end(client, receipt, COMMIT).code == ResponseCode.SUCCESS
    for each in asked:
        answer_check(client, each, COMMIT)
    minutes(broker, 2, client)
    assert checks(client) == []
    assert len(client.pull("T")) == 1


def test_nobody_is_asked_before_the_timeout() -> None:
    broker = Driver(BrokerSettings(transaction_check_interval_ms=1_000))
    client = producer(broker)
    broker.advance(500)
    half(client)
    broker.advance(5_000)
    assert checks(client) == []
    broker.advance(2_000)
    assert len(checks(client)) >= 1


def test_a_message_may_ask_for_more_patience() -> None:
    broker = Driver()
    client = producer(broker)
    half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="150")
    half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="nonsense")
    minutes(broker, 2, client)
    assert {asked.tran_state_table_offset for asked, _ in checks(client)} == {2, 3}
    minutes(broker, 1, client)
    assert len(checks(client)) == 2


def test_a_producer_whose_clock_is_ahead_is_asked_all_the_same() -> None:
    broker = Driver()
    client = producer(broker)
    header = client.send_header("T", TRAN_MSG="true", PGROUP="pg")
    broker.set_wall(WALL_MS - 3_600_000)
    client.ask(RequestCode.SEND_MESSAGE_V2, header)
    minutes(broker, 1, client)
    assert len(checks(client)) == 1


def test_the_members_of_a_producer_group_are_asked_in_turn() -> None:
    broker = Driver()
    clients = [broker.connect() for _ in range(2)]
    for number, client in enumerate(clients):
        client.heartbeat(f"p@{number}", produces=["pg"])
    for _ in range(4):
        half(clients[0])
    broker.advance(MINUTE_MS, step_ms=1_000)
    assert [len(checks(client)) for client in clients] == [2, 2]


def test_after_15_questions_it_is_given_up_and_can_be_resumed() -> None:
    broker = Driver()
    client = producer(broker)
    half(client, b"nobody knows", TAGS="eu")
    minutes(broker, 15, client)
    assert len(checks(client)) == 15
    minutes(broker, 2, client)
    assert checks(client) == []
    assert len(broker.core.transactions) == 0
    (given_up,) = client.pull(names.CHECK_MAX_TOPIC)
    assert (given_up.body, given_up.properties["REAL_TOPIC"], given_up.tag) == (b"nobody knows", "T", "eu")

    resume = ResumeCheckHalfMessage(msg_id=given_up.offset_message_id)
    assert client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume).code == ResponseCode.SUCCESS
    minutes(broker, 1, client)
    ((asked, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    answer_check(client, asked, COMMIT)
    assert client.bodies("T") == [b"nobody knows"]


def test_what_is_older_than_three_days_is_given_up() -> None:
    broker = Driver()
    client = producer(broker)
    half(client)
    broker.set_wall(WALL_MS + 73 * 3_600_000)
    minutes(broker, 1, client)
    assert checks(client) == []
    assert len(client.pull(names.CHECK_MAX_TOPIC)) == 1


def test_an_open_transaction_can_be_resumed_and_an_ended_one_cannot() -> None:
    broker = Driver()
    client = producer(broker)
    first = half(client)
    minutes(broker, 3, client)
    checks(client)
    resume = ResumeCheckHalfMessage(msg_id=first.msg_id)
    assert client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume).code == ResponseCode.SUCCESS
    minutes(broker, 1, client)
    ((asked, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    answer_check(client, asked, COMMIT)
    assert client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume).code == ResponseCode.SYSTEM_ERROR
    assert len(client.pull("T")) == 1


@pytest.mark.parametrize("msg_id", ["", "x", "0" * 32, "F" * 32, "0" * 56, "Z" * 32])
def test_an_id_that_is_no_half_message_cannot_be_resumed(msg_id: str) -> None:
    client = Driver().connect()
    answer = client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=msg_id))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_an_ordinary_message_cannot_be_made_a_half_message() -> None:
    client = Driver().connect()
    receipt = client.send("T", REAL_TOPIC="U", REAL_QID="0", PGROUP="pg")
    answer = client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=receipt.msg_id))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_without_a_producer_the_questions_are_counted_all_the_same() -> None:
    broker = Driver()
    client = broker.connect()
    half(client)
    minutes(broker, 17)
    assert len(client.pull(names.CHECK_MAX_TOPIC)) == 1


def test_a_producer_that_vanishes_is_not_asked_and_its_successor_is() -> None:
    broker = Driver()
    client = producer(broker)
    half(client)
    client.close()
    successor = producer(broker)
    minutes(broker, 1, successor)
    ((asked, _),) = checks(successor)
    answer_check(successor, asked, COMMIT)
    assert len(successor.pull("T")) == 1


def test_many_silent_transactions_are_asked_for_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TICK_CHECKS_MAX", 3)
    broker = Driver()
    client = producer(broker)
    for _ in range(10):
        half(client)
    broker.advance(MINUTE_MS, step_ms=1_000)
    assert len(checks(client)) == 3
    broker.advance(400)
    assert len(checks(client)) == 7


def test_a_patient_transaction_does_not_keep_a_start_reading_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "LEFT_BEHIND_MAX", 5)
    broker = Driver()
    client = producer(broker)
    patient = half(client, b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
    for _ in range(10):
        end(client, half(client), ROLLBACK)
    minutes(broker, 2, client)
    assert checks(client) == []
    assert (broker.core.offsets.get(GROUP, names.HALF_TOPIC, 0) or 0) > 0
    broker.restart(crash=True)
    client = producer(broker)
    assert end(client, patient, COMMIT).code == ResponseCode.SUCCESS
    assert client.bodies("T") == [b"patient"]


# --- restarts


def test_the_groups_offsets_say_from_where_a_start_reads() -> None:
    broker = Driver()
    client = producer(broker)
    receipts = [half(client) for _ in range(4)]
    end(client, receipts[0], COMMIT)
    end(client, receipts[1], ROLLBACK)
    end(client, receipts[3], ROLLBACK)
    broker.advance(5_000)
    assert broker.core.offsets.get(GROUP, names.HALF_TOPIC, 0) == 2
    assert broker.core.offsets.get(GROUP, names.OP_HALF_TOPIC, 0) == 2
    end(client, receipts[2], COMMIT)
    broker.advance(5_000)
    assert broker.core.offsets.get(GROUP, names.HALF_TOPIC, 0) == 4
    assert broker.core.offsets.get(GROUP, names.OP_HALF_TOPIC, 0) == 4


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("waited_ms", [0, 4_000, 70_000, 130_000])
def test_open_transactions_are_known_after_a_restart_and_ended_ones_stay_so(
    crash: bool, waited_ms: int
) -> None:
    broker = Driver()
    client = producer(broker)
    receipts = [half(client, b"%d" % number) for number in range(6)]
    end(client, receipts[0], COMMIT)
    end(client, receipts[1], ROLLBACK)
    end(client, receipts[4], COMMIT)
    broker.advance(waited_ms, step_ms=1_000)
    broker.restart(crash=crash)
    client = producer(broker)
    assert end(client, receipts[0], COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert end(client, receipts[1], COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert end(client, receipts[2], COMMIT).code == ResponseCode.SUCCESS
    minutes(broker, 1, client)
    answers = checks(client)
    assert [message.body for _, message in answers] == [b"3", b"5"]
    for asked, _ in answers:
        answer_check(client, asked, COMMIT)
    broker.restart(crash=crash)
    client = producer(broker)
    minutes(broker, 2, client)
    assert checks(client) == []
    assert sorted(client.bodies("T")) == [b"0", b"2", b"3", b"4", b"5"]


def test_a_power_cut_at_any_moment_neither_loses_nor_doubles_a_commit() -> None:
    """The producer's word counts once: what it committed and saw answered is there, what it rolled back is not."""
    for seed in range(12):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        broker = Driver(
            BrokerSettings(transaction_check_interval_ms=3_000, transaction_timeout_ms=1_000), disk=disk
        )
        fates: dict[bytes, int] = {}
        for life in range(4):
            client = producer(broker)
            for number in range(rng.randrange(1, 6)):
                body = b"%d-%d" % (life, number)
                receipt = half(client, body, UNIQ_KEY=body.decode())
                fates[body] = rng.choice((COMMIT, ROLLBACK))
                if rng.random() < 0.5:
                    end(client, receipt, fates[body])
                broker.advance(rng.randrange(2_500))
                for asked, message in checks(client):
                    if rng.random() < 0.5:
                        answer_check(client, asked, fates[message.body])
            broker.core.writes.when_settled = lambda: None
            disk.cut_power()
            broker.core = broker._open()
            broker.clients.clear()
        client = producer(broker)
        for _ in range(3):
            broker.advance(3_000)
            for asked, message in checks(client):
                answer_check(client, asked, fates[message.body])
        expected = sorted(body for body, fate in fates.items() if fate == COMMIT)
        assert sorted(client.bodies("T")) == expected, f"seed {seed}"
        assert len(broker.core.transactions) == 0


def test_an_end_that_could_not_be_written_leaves_the_transaction_open() -> None:
    disk = SimDisk(random.Random(1))
    broker = Driver(disk=disk)
    client = producer(broker)
    first, second = half(client, b"1"), half(client, b"2")

    def refuse(call: str, name: str) -> None:
        if call == "pwrite" and name.startswith("log"):
            raise OSError("the disk says no")

    disk.before = refuse
    assert end(client, first, COMMIT).code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.before = None
    assert len(broker.core.transactions) == 2
    assert end(client, second, COMMIT).code == ResponseCode.SUCCESS
    assert end(client, first, COMMIT).code == ResponseCode.SUCCESS
    assert client.bodies("T") == [b"2", b"1"]


def test_properties_without_room_for_ours_are_given_up_instead_of_stopping_the_broker() -> None:
    broker = Driver()
    client = producer(broker)
    taken = 0
    for length in range(32_600, 32_700):
        header = client.send_header("T", TRAN_MSG="true", PGROUP="pg", x="y" * length)
        taken += client.ask(RequestCode.SEND_MESSAGE_V2, header).code == ResponseCode.SUCCESS
    assert taken
    for _ in range(130):
        broker.now = type(broker.now)(broker.now.monotonic_ms + 1_000, broker.now.wall_ms + 1_000)
        broker.core.tick(broker.now)
        broker.core.incidents.clear()
    given_up = len(broker.connect().pull(names.CHECK_MAX_TOPIC))
    assert given_up > 0
    assert len(broker.core.transactions) + given_up == taken


def test_a_commit_after_the_topic_was_deleted_ends_the_transaction_and_makes_no_topic() -> None:
    broker = Driver()
    client = producer(broker)
    receipt = half(client)
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="T"))
    assert end(client, receipt, COMMIT).code == ResponseCode.SUCCESS
    assert len(broker.core.transactions) == 0
    broker.restart()
    assert "T" not in broker.core.topics


def test_a_message_given_back_by_an_old_client_is_no_half_message_though_it_bears_the_mark_of_one() -> None:
    broker = Driver()
    client = producer(broker)
    header = client.send_header("%RETRY%g", TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="U1")
    for tries, topic in ((1, "%RETRY%g"), (16, "%DLQ%g")):
        again = msgspec.structs.replace(header, reconsume_times=tries)
        assert client.ask(RequestCode.SEND_MESSAGE_V2, again, b"body").code == ResponseCode.SUCCESS
        assert client.bodies(topic) == [b"body"]
    assert len(broker.core.transactions) == 0
