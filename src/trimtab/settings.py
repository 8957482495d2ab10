"""What can be chosen about clients, in small frozen objects with the units in their names."""

from dataclasses import dataclass

from trimtab.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long anything may take."""

    connect_s: float = 3.0
    request_s: float = 3.0
    """Routes, heartbeats, lists: the small questions."""
    send_s: float = 3.0
    """A send with all of its tries."""
    close_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often a session does what it does by itself."""

    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a producer sends."""

    policy: str = "adaptive"
    """`adaptive`, `round-robin`, `classic-4.2` or `4.9.3`."""
    retries: int = 2
    batching: bool = True
    """While a request for a queue is on its way, further messages for it gather and leave together."""
    batch_bytes_max: int = 1 << 20
    batch_messages_max: int = 1_000
    message_bytes_max: int = 4 << 20
    compress_from_bytes: int = 4_096
    compression: str = "zlib"
    """`zlib` is read by every version; `lz4` and `zstd` by 5.x and by us. `none` never compresses."""
    waiting_messages_max: int = 100_000
    """How many sends may wait for their receipts; one more waits for room."""
    default_topic_queues: int = 4

    def __post_init__(self) -> None:
        """Names are checked here, so that a typing mistake is seen at once."""
        if self.policy not in ("adaptive", "round-robin", "classic-4.2", "4.9.3"):
            raise SettingsError(
                f"policy {self.policy!r} is none of adaptive, round-robin, classic-4.2, 4.9.3"
            )
        if self.compression not in ("zlib", "lz4", "zstd", "none"):
            raise SettingsError(f"compression {self.compression!r} is none of zlib, lz4, zstd, none")
        if self.retries < 0 or self.batch_messages_max < 1 or self.waiting_messages_max < 1:
            raise SettingsError(
                "retries must be 0 or more, batch_messages_max and waiting_messages_max 1 or more"
            )
