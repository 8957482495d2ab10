"""The clients without await: same names, one thread with a loop behind them, nothing left at the end."""

import subprocess
import sys
import threading

import pytest

from trimtab import Message, MessageQueue, Receipt, Received, blocking
from trimtab.errors import ClosedError, InvalidMessageError
from trimtab.testing import Cluster


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "trimtab-blocking"]


def test_sends_without_await() -> None:
    with Cluster() as cluster, blocking.Producer("pg", nameserver=cluster.nameserver) as producer:
        receipt = producer.send(Message("orders", b"x"), key="k")
        assert (receipt.status, receipt.queue_offset) == ("SEND_OK", 0)
        assert len(producer.send_batch([Message("orders", b"y")] * 3)) == 3
        assert len(producer.send_many([Message("orders", b"z")] * 3)) == 3
        assert producer.group == "pg"
        assert producer.client_id
        assert [standing.broker_name for standing in producer.brokers()] == ["broker-a"]
        with pytest.raises(InvalidMessageError):
            producer.send(Message("a b", b"x"))


def test_many_threads_may_use_one_producer_and_all_share_one_loop() -> None:
    receipts: list[Receipt] = []
    with Cluster() as cluster, blocking.Producer("pg", nameserver=cluster.nameserver) as producer:

        def work() -> None:
            receipts.extend(producer.send(Message("orders", b"x")) for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        with blocking.Producer("pg", nameserver=cluster.nameserver) as other:
            other.send(Message("orders", b"x"))
            assert other.client_id == producer.client_id
        assert len(loop_threads()) == 1
        for thread in threads:
            thread.join()
    assert len({receipt.message_id for receipt in receipts}) == 80


def test_waiting_for_itself_is_refused() -> None:
    with Cluster() as cluster, blocking.Producer("pg", nameserver=cluster.nameserver) as producer:

        async def inside() -> Receipt:
            return producer.send(Message("orders", b"x"))

        with pytest.raises(ClosedError, match="wait for itself"):
            producer.run(inside())


def test_stop_closes_what_is_open_and_the_next_client_starts_anew() -> None:
    with Cluster() as cluster:
        left_open = blocking.Producer("pg", nameserver=cluster.nameserver)
        left_open.start()
        blocking.stop()
        assert loop_threads() == []
        left_open.close()
        with pytest.raises(ClosedError, match="make a new one"):
            left_open.send(Message("orders", b"x"))
        with blocking.Producer("pg", nameserver=cluster.nameserver) as producer:
            assert producer.send(Message("orders", b"x")).status == "SEND_OK"


def test_a_program_that_forgets_to_close_ends_all_the_same() -> None:
    program = (
        "from trimtab import blocking, Message\n"
        "producer = blocking.Producer('pg', nameserver='embedded:')\n"
        "producer.start()\n"
        "print(producer.send(Message('orders', b'x')).status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "SEND_OK\n", "")


def test_a_push_consumer_calls_its_handler_in_threads_and_waits_until_it_is_closed() -> None:
    handlers: set[str] = set()
    got: list[bytes] = []
    told: list[str] = []
    all_came = threading.Event()

    with Cluster() as cluster, blocking.Producer("pg", nameserver=cluster.nameserver) as producer:

        def handle(message: Received) -> None:
            handlers.add(threading.current_thread().name)
            if message.topic == "orders":
                producer.send(Message("done", message.body))  # a handler may use blocking clients
            got.append(message.body)
            if len(got) == 20:
                all_came.set()

        def on_queues(queues: tuple[MessageQueue, ...]) -> None:
            told.append(threading.current_thread().name)

        producer.send_many([Message("orders", b"%d" % number) for number in range(10)])
        with blocking.PushConsumer(
            "g", subscribe={"orders": "*"}, handler=handle, nameserver=cluster.nameserver, start="first", on_assigned=on_queues
        ) as consumer:  # fmt: skip
            consumer.subscribe("done")
            assert all_came.wait(60)
            assert not consumer.wait(0.01)
            assert {holding.queue.topic for holding in consumer.holdings()} >= {"orders", "done"}
            consumer.pause()
            consumer.resume()
            assert (consumer.group, consumer.mode) == ("g", "leased")
            assert consumer.client_id
            closing = threading.Timer(0.05, consumer.close)
            closing.start()
            assert consumer.wait(60)
            closing.join()
    assert sorted(got, key=int) == sorted([b"%d" % number for number in range(10)] * 2, key=int)
    assert "trimtab-blocking" not in handlers
    assert told
    assert "trimtab-blocking" not in told


def test_a_blocking_push_consumer_starts_again_after_its_end() -> None:
    got: list[bytes] = []
    one_more = threading.Semaphore(0)

    def handle(message: Received) -> None:
        got.append(message.body)
        one_more.release()

    with Cluster() as cluster, blocking.Producer("pg", nameserver=cluster.nameserver) as producer:
        consumer = blocking.PushConsumer(
            "g", subscribe={"orders": "*"}, handler=handle, nameserver=cluster.nameserver, start="first"
        )
        for body in (b"a", b"b"):
            producer.send(Message("orders", body))
            with consumer:
                assert one_more.acquire(timeout=60)
    assert got == [b"a", b"b"]
