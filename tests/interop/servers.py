"""The server that a test body meets: ours, or Apache's of some version. `TRIMTAB_SERVERS` picks them.

Each is a name server and two brokers on loopback, shared by all tests: they take topics and groups of their own and leave the
servers whole. Settings are the defaults but for those that would make a test wait a minute.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from tests.apache.cluster import ApacheCluster
from tests.apache.java import LIGHT_LOAD_FLAGS
from tests.apache.server import Server
from tests.apache.versions import VERSIONS
from tests.raw import RawConnection
from trimtab.broker.settings import BrokerSettings
from trimtab.testing import Cluster
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import CreateTopic
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.names import GetRouteInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from trimtab.wire.headers.base import Header

T = TypeVar("T")

OWN = "own"
DEFAULT = (OWN, "4.9.3")
WAIT_S = 60.0
POLL_S = 0.05
CHECK_MS = 1_000

_opaques = itertools.count(1)


def chosen_servers() -> tuple[str, ...]:
    """The comma-separated servers of `TRIMTAB_SERVERS`, or our own and the oldest Apache."""
    wanted = tuple(part.strip() for part in os.environ.get("TRIMTAB_SERVERS", "").split(",") if part.strip())
    known = (OWN, *VERSIONS)
    for name in wanted:
        if name not in known:
            raise ValueError(f"TRIMTAB_SERVERS names {name!r}; choose among {', '.join(known)}")
    return wanted or DEFAULT


def unique(what: str) -> str:
    """A name that no other test takes."""
    return f"{what}-{uuid.uuid4().hex[:10]}"


def eventually(condition: Callable[[], T | None], what: str, wait_s: float = WAIT_S) -> T:
    """What the condition gives as soon as that is true."""
    deadline = time.monotonic() + wait_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not in {wait_s:.0f} s: {what}"
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    name: str
    address: str


class ServerUnderTest(ABC):
    """A name server and its brokers."""

    version: str
    nameserver: str
    brokers: tuple[BrokerPlace, ...]

    @property
    def is_own(self) -> bool:
        return self.version == OWN

    @property
    def speaks_5x(self) -> bool:
        """Whether what only 5.x brokers do can be asked of it; ours does the useful part of that."""
        return self.is_own or self.version.startswith("5.")

    @property
    def can_call_logs_old(self) -> bool:
        return self.is_own or self.version.startswith("4.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.version} {self.nameserver} {self.brokers}>"

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def restart(self) -> None:
        """All brokers say goodbye and come back with their stores, at their places."""

    @abstractmethod
    def crash(self) -> None:
        """All brokers are killed and come back with their stores, at their places."""

    @abstractmethod
    def call_logs_old(self, old: bool) -> None:
        """Old: a new group on a queue has no offset, so the client decides. Young (the default): it begins at 0."""

    @contextmanager
    def old_logs(self) -> Iterator[None]:
        self.call_logs_old(True)
        try:
            yield
        finally:
            self.call_logs_old(False)

    def ask(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """The answer to one raw request."""
        with RawConnection(address) as connection:
            return connection.exchange(request(code, header, body))

    def make_topic(self, prefix: str = "topic", queues: int = 4) -> str:
        """A topic with this many queues at each broker, and with a route."""
        topic = unique(prefix)
        header = CreateTopic(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        for broker in self.brokers:
            made = self.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert made.code == ResponseCode.SUCCESS, made.remark
        eventually(lambda: self.has_route(topic), f"a route of {topic}")
        return topic

    def route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask(self.nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))
        return decode_body(TopicRouteData, answer.body) if answer.code == ResponseCode.SUCCESS else None

    def has_route(self, topic: str) -> bool:
        """Whether every broker has queues of this topic."""
        route = self.route(topic)
        return route is not None and len(route.queue_datas) == len(self.brokers)


def request(code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
    """A raw request with a number of its own."""
    return Command(
        code=code, opaque=next(_opaques), ext={} if header is None else encode_ext(header), body=body
    )


class ApacheServer(ServerUnderTest):
    """Apache's servers, each a JVM."""

    def __init__(self, version: str, broker_names: Sequence[str] = ("broker-a", "broker-b")) -> None:
        self.version = version
        settings = {"transactionTimeOut": str(CHECK_MS), "transactionCheckInterval": str(CHECK_MS)}
        self.cluster = ApacheCluster(
            version, broker_names, broker_settings=settings, jvm_args=LIGHT_LOAD_FLAGS
        )

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.nameserver = self.cluster.nameserver
        self.brokers = tuple(BrokerPlace(broker.name, broker.address) for broker in self.cluster.brokers)
        # A broker of 4.9.3 throws when it is asked for its state before it has counted for a while.
        for broker in self.brokers:
            eventually(partial(self._tells_its_state, broker), f"{broker.name} tells its state")
        return self

    def _tells_its_state(self, broker: BrokerPlace) -> bool:
        return self.ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.__exit__(kind, error, trace)

    def restart(self) -> None:
        self._end_and_start(Server.stop)

    def crash(self) -> None:
        self._end_and_start(Server.kill)

    def _end_and_start(self, end: Callable[[Server], None]) -> None:
        servers = [self.cluster.server(broker.name) for broker in self.brokers]
        with ThreadPoolExecutor() as pool:  # a farewell takes seconds
            list(pool.map(end, servers))
        self.cluster.start(*(server.name for server in servers))
        eventually(lambda: self.has_route("TBW102"), "Apache's brokers registered")

    def call_logs_old(self, old: bool) -> None:
        setting = f"accessMessageInMemoryMaxRatio={0 if old else 40}\n"
        for broker in self.brokers:
            answer = self.ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=setting.encode())
            assert answer.code == ResponseCode.SUCCESS, answer.remark


class OwnServer(ServerUnderTest):
    """Our servers, in a thread of this process, with stores on a real disk."""

    version = OWN

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-own-"))
        settings = BrokerSettings(transaction_timeout_ms=CHECK_MS, transaction_check_interval_ms=CHECK_MS)
        self._wanted = Cluster(brokers=2, directory=self._folder, settings=settings)

    def __enter__(self) -> Self:
        self._cluster = self._wanted.__enter__()
        self.nameserver = self._cluster.nameserver
        self.brokers = tuple(BrokerPlace(name, address) for name, address in self._cluster.brokers.items())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wanted.__exit__(kind, error, trace)
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self) -> None:
        for broker in self.brokers:
            self._cluster.restart(broker.name)

    def crash(self) -> None:
        for broker in self.brokers:
            self._cluster.kill(broker.name)
        self.restart()

    def call_logs_old(self, old: bool) -> None:
        for node in self._cluster._cluster._brokers.values():
            settings = node.server.plan.settings
            node.server.core.settings = replace(settings, young_log_bytes=0) if old else settings


class Servers:
    """Running servers by name, each started once; all are gone when the block ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._own: OwnServer | None = None
        self._apache: dict[str, ApacheServer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def running(self, version: str) -> ServerUnderTest:
        """The one that all tests of this process share."""
        if version != OWN:
            return self.apache(version)
        if self._own is None:
            self._own = self._stack.enter_context(OwnServer())
        return self._own

    def apache(self, version: str) -> ApacheServer:
        if version not in self._apache:
            self._apache[version] = self._stack.enter_context(ApacheServer(version))
        return self._apache[version]
