"""The epochs that our broker adds to the answer of LOCK_BATCH_MQ are passed over by the stock clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trimtab.model import MessageQueue
from trimtab.wire.bodies import LockBatchResponseBody, decode_body, encode_body
from trimtab.wire.bodies.locks import LeaseBatchResponseBody

if TYPE_CHECKING:
    from tests.apache.fixtures import OracleFactory

EPOCHS = [(), (1,), (1_700_000_000_001, 1_700_000_000_002, 2**63 - 1)]


@pytest.mark.parametrize("epochs", EPOCHS)
def test_java_reads_the_queues_and_passes_over_the_epochs(
    java_oracle: OracleFactory, apache_version: str, epochs: tuple[int, ...]
) -> None:
    queues = tuple(MessageQueue("T", "broker-a", number) for number in range(len(epochs)))
    body = encode_body(LeaseBatchResponseBody(lock_ok_mq_set=queues, lease_epochs=epochs))
    assert b"leaseEpochs" in body
    (answer,) = java_oracle(apache_version, "BodyOracle").run([f"reread LockBatchResponseBody {body.hex()}"])
    assert not answer.startswith("!"), answer
    read = decode_body(LockBatchResponseBody, bytes.fromhex(answer))
    assert set(read.lock_ok_mq_set) == set(queues)
