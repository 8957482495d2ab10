"""What can be chosen about a broker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """One broker. The defaults are Apache's where that is what clients expect, else the useful ones."""

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    broker_id: int = 0
    advertised_host: str = "127.0.0.1"
    """The address that clients are told and that message ids carry."""
    region: str = "DefaultRegion"

    auto_create_topics: bool = True
    auto_create_groups: bool = True
    default_topic_queues: int = 8
    trace_topic: bool = True

    message_bytes_max: int = 4 << 20
    topics_max: int = 10_000
    groups_max: int = 10_000
    queues_per_topic_max: int = 1_024
    members_max: int = 1_000
    """Groups of one client, and topics that a group consumes."""
    leases_max: int = 100_000
    held_pulls_max: int = 10_000
    unanswered_requests_max: int = 10_000
    unsynced_sends_max: int = 50_000
    """Requests whose messages are written and not yet on disk; beyond that senders are told that the broker is busy."""

    pull_bytes_max: int = 256 << 10
    """Of an answer to a client that does not say how much it wants."""
    pull_bytes_asked_max: int = 4 << 20
    pull_messages_max: int = 32
    """Of an answer to a client that does not say how many bytes it wants, as Apache's brokers do."""

    consumer_silence_ms_max: int = 120_000
    lease_ms: int = 60_000
    closed_lease_grace_ms: int = 3_000

    young_log_bytes: int = 4 << 30
    """A new group begins at the beginning of a queue that lies within this much of the log's end."""

    delay_levels: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    timer_ms_max: int = 3 * 24 * 3_600_000

    reject_transactions: bool = False
    transaction_timeout_ms: int = 6_000
    transaction_checks_max: int = 15
    transaction_check_interval_ms: int = 60_000
    transaction_ms_max: int = 72 * 3_600_000
    """A half message that was born longer ago is given up, however often its producer was asked."""
    open_transactions_max: int = 100_000
