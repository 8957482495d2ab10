"""The stock Java client under the same load, as a process of its own with a server's JVM settings."""

import json
from functools import cache
from typing import Any

from tests.apache.oracle import SOURCES, JavaOracle

# A client that runs for minutes: the optimising compiler and a real heap, not the flags of short-lived oracles.
SERVER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx1g")


@cache
def _program(version: str) -> JavaOracle:
    return JavaOracle(version, SOURCES / "bench" / "SendBench.java")


def java_sends(
    nameserver: str,
    topic: str,
    kind: str,
    *,
    in_flight: int,
    size: int,
    messages: int,
    batch: int = 1,
    latency_fault: bool = False,
    per_second: int = 0,
    version: str = "4.9.3",
) -> dict[str, Any]:
    """What the stock producer reaches; its own warming up is not counted."""
    args = [nameserver, topic, kind, in_flight, size, messages, batch, str(latency_fault).lower(), per_second]
    lines = _program(version).run(args=[str(arg) for arg in args], jvm_args=SERVER_JVM)
    report: dict[str, Any] = json.loads(lines[-1])
    return report
