"""Commits of a former holder: refused, if they say under which lease they were made.

A consumer that was stopped for a while, or whose request travelled long, may commit an offset after another one has taken the
queue over; the queue would go back to it. Our own clients send the epoch of their lease with a commit. Who sends none is
believed, as everybody is by Apache's broker.
"""

from typing import TYPE_CHECKING

from trimtab.broker.requests import Refused
from trimtab.model import MessageQueue
from trimtab.wire.codes import ResponseCode
from trimtab.wire.headers.consume import PullMessage, UpdateConsumerOffset

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore


def commit_offset(core: "BrokerCore", header: UpdateConsumerOffset | PullMessage) -> None:
    """Takes the group's word for how far it has come, or `Refused`."""
    group, epoch = header.consumer_group, header.lease_epoch
    if epoch is not None:
        queue = MessageQueue(header.topic, core.settings.broker_name, header.queue_id)
        newer = core.leases.newer_than(group, queue, epoch)
        if newer is not None:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"commit of {queue} refused: {newer.client_id} of group {group} was granted the queue under lease epoch"
                f" {newer.epoch}, after yours ({epoch}); stop consuming it until you hold it again",
            )
    core.offsets.commit(group, header.topic, header.queue_id, header.commit_offset)
