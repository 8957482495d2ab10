"""The option `createTopic`: a topic that is not there is made while the query is planned. One that is there stays as it is."""

import logging

from trimtab.client.admin import Admin
from trimtab.client.admin.reach import NoSuchTopicError
from trimtab.spark.background import background, connection_options, patience_s, timeouts
from trimtab.spark.options import SinkOptions

_log = logging.getLogger(__name__)


def make_topic(options: SinkOptions) -> None:
    """Returns when the topic is there; an error says why it cannot be made."""
    asked = f"making topic {options.topic!r}"
    background().run(_make(options), asked=asked, seconds_max=patience_s(options.access))


async def _make(options: SinkOptions) -> None:
    topic, queues = options.topic, options.topic_queues
    assert topic is not None, "the options were checked together"
    assert queues is not None, "asked for only with a number"
    reached = connection_options(options.access)
    async with Admin(
        nameserver=reached.nameserver,
        credentials=reached.credentials,
        tls=reached.tls,
        timeouts=timeouts(options.access),
    ) as admin:
        try:
            await admin.topic_route(topic)
        except NoSuchTopicError:
            await admin.create_topic(topic, queues=queues)
            _log.info("topic %s was made, with %d queues at each broker", topic, queues)
