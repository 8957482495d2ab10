"""A session on a Spark Connect server, or one sentence that says why there is none."""

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT = 15002
ANSWER_S_MAX = 10.0


def remote_session(remote: str) -> "SparkSession":
    """The source is made known to it. A server that nobody reaches would be asked for ten minutes by Spark, without a word."""
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    from trimtab.spark import register

    require_listening(remote)
    try:
        there = SparkSession.builder.remote(remote).getOrCreate()
    except PySparkImportError as error:
        raise TrimtabError(
            f'--remote needs more of Spark: pip install "pyspark[connect]" ({error})'
        ) from error
    register(there)
    return there


def require_listening(remote: str) -> None:
    """Raises if nobody takes connections at `sc://host:port`; other addresses are left to Spark."""
    place = urlsplit(remote)
    if place.scheme != "sc" or place.hostname is None:
        return
    try:
        socket.create_connection((place.hostname, place.port or PORT), ANSWER_S_MAX).close()
    except OSError as error:
        raise TrimtabError(f"no Spark Connect server takes connections at {remote}: {error}") from error
