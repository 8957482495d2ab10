"""Which source a checkpoint belongs to.

Spark goes on with any checkpoint that it can read: offsets of one cluster would be taken for those of another, or of another topic,
and messages left out without a word. So whose offsets they are stands beside them, and a folder of another source is refused.

Name servers come and go, and topics are added to a list: what two runs have in common makes them the same. A checkpoint without a batch
has no offsets yet that could be taken for others: a run that failed at once, over a misspelt topic, claims nothing.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "trimtab-source.json"
_NAMESERVER = ("nameserver", "namesrvaddr", "kafka.bootstrap.servers")
_TOPIC = ("topic", "subscribe")
_PATTERN = ("topicpattern", "subscribepattern")
_QUEUES = ("queues", "assign")

Identity = Mapping[str, list[str]]


def identity_of(options: Mapping[str, str], nameserver: str | None = None) -> Identity:
    """What a source's or a sink's options say of where it is; `nameserver` if they name none. PURE."""
    given = {name.lower(): value for name, value in options.items()}
    found = {
        "nameserver": _listed(_first(given, _NAMESERVER) or nameserver or "", ";"),
        "topic": _listed(_first(given, _TOPIC), ",") or _topics_of(_first(given, _QUEUES)),
        "topicPattern": [_first(given, _PATTERN)],
    }
    return {what: values for what, values in found.items() if any(values)}


def refusal(folder: str, before: Identity, now: Identity) -> str | None:
    """Why a checkpoint that was made for one source is not to be gone on with for another; None if it may. PURE."""
    for what in sorted({*before, *now}):
        if not set(before.get(what, ())) & set(now.get(what, ())):
            return (
                f"{folder} was made for {_said(before)}, and this is {_said(now)}: choose another folder, or remove"
                f" {folder}/{FILE} if it is the same source under another name"
            )
    return None


def claim(spark: "SparkSession", checkpoint: str, now: Mapping[str, Identity]) -> None:
    """Writes beside a checkpoint whose it is, each part under a name of its own; raises if it is somebody else's.

    A checkpoint of an earlier version says nothing and is taken over. Over Spark Connect the folder cannot be seen, and is not looked at.
    """
    if not hasattr(spark, "_jsc"):
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark shows its file systems to Python nowhere else
    path, batches = (jvm.org.apache.hadoop.fs.Path(checkpoint, name) for name in (FILE, "offsets"))
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    if files.exists(path) and files.exists(batches) and len(files.listStatus(batches)):
        stream = files.open(path)
        before = json.loads(bytes(stream.readAllBytes()).decode())
        stream.close()
        for part, identity in now.items():
            if part in before and (reason := refusal(checkpoint, before[part], identity)):
                raise SettingsError(reason)
    stream = files.create(path, True)  # noqa: FBT003 - Hadoop's signature
    stream.write(json.dumps(now).encode())
    stream.close()


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name].strip() for name in names if given.get(name, "").strip()), "")


def _listed(text: str, separator: str) -> list[str]:
    parts = text.replace(",", separator).split(separator)
    return sorted({part.strip() for part in parts if part.strip()})


def _topics_of(queues: str) -> list[str]:
    try:
        return sorted(json.loads(queues))
    except (ValueError, TypeError):
        return []  # the source itself says what is wrong with it


def _said(identity: Identity) -> str:
    where = ", ".join(identity.get("nameserver", ())) or "no name server"
    what = ", ".join(identity.get("topic", ()) or identity.get("topicPattern", ())) or "no topic"
    return f"{what} at {where}"
