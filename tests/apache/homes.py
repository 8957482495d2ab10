"""What a bare RocketMQ jar expects around it: a home folder with logging and server settings.

Servers log to the console, which goes to one file per child. 4.9 insists on `conf/logback_<program>.xml` in its
home; 5.x carries a logback of its own, renamed, that asks the property `rmq.logback.configurationFile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.apache.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLUSTER = "DefaultCluster"

LOGBACK = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.{stream}</target>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5p %c{{0}} [%t] %m%n</pattern></encoder>
  </appender>
  <logger name="io.netty" level="WARN"/>
  <root level="{level}"><appender-ref ref="console"/></root>
</configuration>
"""

# Sizes keep a store small; the waits let a machine with one busy core answer late instead of with an error;
# the ratios let a well-filled disk pass. All else is RocketMQ's default, because the default is what we study.
BROKER_SETTINGS: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 50_000),
    "mappedFileSizeTimerLog": str(4 << 20),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "waitTimeMillsInSendQueue": "10000",
    "waitTimeMillsInPullQueue": "10000",
    "waitTimeMillsInTransactionQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
    # 5.x copies its whole timer wheel every second, which takes a quarter of a core of a broker that has nothing to do.
    "timerFlushIntervalMs": "30000",
    # 5.5.0 turns a whole core once no transaction has ended for this long, and never stops: what is due is reckoned from queues with nothing to
    # write too. So the wait is a day, and a mark is written as soon as it has a byte.
    "transactionOpBatchInterval": "86400000",
    "transactionOpMsgMaxSize": "1",
}
# 4.9 reads these as properties only. 5.x cuts them down to 0.90 and 0.85, whatever is asked.
DISK_FLAGS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)


def home_flags(home: Path, *, stream: str = "out", level: str = "INFO") -> list[str]:
    """Makes `home` a home for any RocketMQ program and returns the JVM flags that lead there."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for program in ("namesrv", "broker", "tools"):
        (conf / f"logback_{program}.xml").write_text(LOGBACK.format(stream=stream, level=level))
    logback = conf / "logback_tools.xml"
    return [
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        f"-Djava.io.tmpdir={home}",
        f"-Dlogback.configurationFile={logback}",
        f"-Drmq.logback.configurationFile={logback}",
    ]


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def nameserver_settings(home: Path, port: int) -> dict[str, str]:
    return {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "kvConfigPath": str(home / "kvConfig.json"),
        "configStorePath": str(home / "namesrv.properties"),
    }


def broker_settings(
    home: Path, name: str, port: int, nameserver: str, overrides: Mapping[str, str]
) -> dict[str, str]:
    store = home / "store"
    return {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": LOOPBACK,
        "brokerIP2": LOOPBACK,
        "bindAddress": LOOPBACK,
        "listenPort": str(port),
        "namesrvAddr": nameserver,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **BROKER_SETTINGS,
        **overrides,
    }
