"""What can be chosen about clients, in small frozen objects with the units in their names."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trimtab.errors import SettingsError
from trimtab.wire.frames import BODY_BYTES_MAX
from trimtab.wire.signing import Credentials

Tls: TypeAlias = ssl.SSLContext | str | Path | bool | None
"""None: no TLS. True: what the system trusts. A path: the certificates in that PEM file. Or a context of your own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Whom to connect to, as whom, and how. Connections go to the brokers' own port, never to the VIP port two below it."""

    nameserver: str
    """`host:port`, several with `;` between them, or `embedded:`."""
    credentials: Credentials | None = None
    tls: Tls = None
    namespace: str | None = None
    """Topics and groups of one namespace are apart from those of others: on the wire they are `namespace%name`."""
    unit_name: str | None = None

    def __post_init__(self) -> None:
        """Names are checked here, so that a typing mistake is seen at once."""
        if self.namespace is not None and ("%" in self.namespace or not self.namespace):
            raise SettingsError(f"namespace {self.namespace!r} must not be empty and must not have a % in it")
        if self.unit_name is not None and ("@" in self.unit_name or not self.unit_name):
            raise SettingsError(
                f"unit name {self.unit_name!r} must not be empty and must not have an @ in it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long anything may take."""

    connect_s: float = 3.0
    request_s: float = 3.0
    """Routes, heartbeats, lists: the small questions."""
    send_s: float = 3.0
    """A send with all of its tries."""
    attempt_s: float | None = None
    """One try of a send. If none is given, a try that another broker could follow has half of the time that is left if its broker is silent,
    any other all of it. A try that is given up may have been stored all the same."""
    close_s: float = 5.0
    silent_s: float = 10.0
    """A connection on which requests time out while nothing has come for so long is given up as half open."""

    def __post_init__(self) -> None:
        """A time that is none is refused."""
        times = (
            self.connect_s,
            self.request_s,
            self.send_s,
            self.close_s,
            self.silent_s,
            self.attempt_s or 1.0,
        )
        if not all(0 < time_s < float("inf") for time_s in times):
            raise SettingsError("every timeout must be a number of seconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often a session does what it does by itself."""

    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0

    def __post_init__(self) -> None:
        """What would never pause is refused."""
        if not (self.route_refresh_s > 0 and self.heartbeat_s > 0):
            raise SettingsError("intervals must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a producer sends."""

    policy: str = "adaptive"
    """`adaptive`, `round-robin`, `classic-4.2` or `4.9.3`."""
    retries: int = 2
    batching: bool = True
    """While a request for a queue is on its way, further messages for it gather and leave together."""
    selector: str = "java"
    """How a key becomes a queue: `java` as Java's clients do, `fnv1a` as the Go client, `siphash` as the gRPC clients."""
    batch_bytes_max: int = 1 << 20
    batch_messages_max: int = 1_000
    message_bytes_max: int = 4 << 20
    compress_from_bytes: int = 4_096
    compression: str = "zlib"
    """`zlib` is read by every version; `lz4` and `zstd` by 5.x and by us. `none` never compresses."""
    waiting_messages_max: int = 100_000
    """How many sends may wait for their receipts; one more waits for room."""
    waiting_bytes_max: int = 64 << 20
    """How many bytes of bodies may wait for receipts; one more send waits for room, but a single one always goes."""
    default_topic_queues: int = 4
    trace: bool = False
    """Tells of every message sent in RMQ_SYS_TRACE_TOPIC, in the form of Java's client."""

    def __post_init__(self) -> None:
        """Names are checked here, so that a typing mistake is seen at once."""
        if self.policy not in ("adaptive", "round-robin", "classic-4.2", "4.9.3"):
            raise SettingsError(
                f"policy {self.policy!r} is none of adaptive, round-robin, classic-4.2, 4.9.3"
            )
        if self.compression not in ("zlib", "lz4", "zstd", "none"):
            raise SettingsError(f"compression {self.compression!r} is none of zlib, lz4, zstd, none")
        if self.selector not in ("java", "fnv1a", "siphash"):
            raise SettingsError(f"selector {self.selector!r} is none of java, fnv1a, siphash")
        if self.retries < 0:
            raise SettingsError("retries must be 0 or more")
        limits = (
            self.batch_messages_max, self.batch_bytes_max, self.message_bytes_max, self.waiting_messages_max,
            self.waiting_bytes_max, self.compress_from_bytes, self.default_topic_queues,
        )  # fmt: skip
        if min(limits) < 1:
            raise SettingsError("every limit of sending must be 1 or more")
        if self.batch_bytes_max > BODY_BYTES_MAX:
            raise SettingsError(
                f"batch_bytes_max {self.batch_bytes_max} is more than {BODY_BYTES_MAX}: a longer request fits no frame"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulling:
    """How consumers pull."""

    depth_max: int = 4
    """Pulls of one queue on their way at once, while there is more to read."""
    pull_messages_max: int = 4_096
    """Of one pull. Apache's brokers give 32 whatever is asked."""
    pull_bytes_max: int = 1 << 20
    """Of one answer. Apache's brokers before 5.x give up to 256 KiB whatever is asked."""
    held_bytes_max: int = 64 << 20
    """Pulled and not yet let go, all queues of a consumer together; a single answer may exceed what is left."""
    suspend_ms: int = 15_000
    """How long a broker may hold a pull for which it has nothing."""
    timeout_s: float = 30.0
    retry_s_min: float = 0.1
    retry_s_max: float = 3.0
    """Between two tries after something went wrong; doubled from the least to this."""

    def __post_init__(self) -> None:
        """What would never pull, or give up while the broker rightly waits, is refused."""
        if min(self.depth_max, self.pull_messages_max, self.pull_bytes_max, self.held_bytes_max) < 1:
            raise SettingsError("depth, messages and bytes of pulls must be 1 or more")
        if self.suspend_ms < 0 or self.timeout_s * 1000 <= self.suspend_ms:
            raise SettingsError(
                "timeout_s of pulls must be longer than suspend_ms, or every wait ends as a failure"
            )
        if not 0 < self.retry_s_min <= self.retry_s_max:
            raise SettingsError("retry_s_min of pulls must be positive and at most retry_s_max")
