"""The options about reaching a cluster, which source and sink share. Secrets never appear in a representation. PURE."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.spark.option_reading import OptionReader
from trimtab.spark.problems import OptionError

CONNECTION_OPTIONS = (
    "nameserver", "namesrvAddr", "kafka.bootstrap.servers", "accessKey", "secretKey", "securityToken", "accessKeyFile",
    "secretKeyFile", "tls", "tlsCaFile", "requestTimeoutMs", "numRetries", "retryIntervalMs",
)  # fmt: skip

Lookup = Callable[[str], str | None]
"""Gives the value of an environment variable, or the content of a file."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the cluster."""

    nameserver: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: str | None = None
    request_ms: int = 3_000
    retries: int = 3
    retry_ms: int = 200


def access_options(reader: OptionReader, env: Lookup, content: Lookup) -> Access:
    """How to reach the cluster; secrets may stand in the environment or in files."""
    nameserver = reader.text("nameserver", "namesrvAddr", "kafka.bootstrap.servers") or env("NAMESRV_ADDR")
    if not nameserver:
        raise OptionError("nameserver", "", "host:port, several with ; between them; or set NAMESRV_ADDR")
    access_key = _secret(reader, "accessKey", "accessKeyFile", env, content)
    secret_key = _secret(reader, "secretKey", "secretKeyFile", env, content)
    if (access_key is None) != (secret_key is None):
        missing = "secretKey" if secret_key is None else "accessKey"
        raise OptionError(missing, "", "both accessKey and secretKey, or neither")
    retries = reader.count("numRetries", least=0)
    ca_file = reader.text("tlsCaFile")
    return Access(
        nameserver=nameserver.replace(",", ";"),
        access_key=access_key,
        secret_key=secret_key,
        security_token=_secret(reader, "securityToken", None, env, content),
        tls=reader.flag("tls", default=ca_file is not None),
        tls_ca_file=ca_file,
        request_ms=reader.span_ms("requestTimeoutMs", 3_000),
        retries=3 if retries is None else retries,
        retry_ms=reader.span_ms("retryIntervalMs", 200),
    )


def _secret(
    reader: OptionReader, name: str, file_name: str | None, env: Lookup, content: Lookup
) -> str | None:
    text = reader.text(name)
    path = None if file_name is None else reader.text(file_name)
    if text is not None and path is not None:
        raise OptionError(str(file_name), path, f"only one of {name} and {file_name}")
    if path is not None:
        found = content(path)
        if found is None or not found.strip():
            raise OptionError(
                str(file_name), path, "a file that this process can read and that holds the key"
            )
        return found.strip()
    if text is None or not (text.startswith("${env:") and text.endswith("}")):
        return text
    variable = text[len("${env:") : -1]
    found = env(variable)
    if not found:
        raise OptionError(name, text, f"the name of an environment variable that is set; {variable!r} is not")
    return found
