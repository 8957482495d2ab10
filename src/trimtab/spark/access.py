"""The options about reaching a cluster, which source and sink share. Secrets never appear in a representation. PURE."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trimtab.spark.option_reading import OptionReader
from trimtab.spark.problems import OptionError

CONNECTION_OPTIONS = (
    "nameserver", "namesrvAddr", "kafka.bootstrap.servers", "accessKey", "secretKey", "securityToken", "accessKeyFile",
    "secretKeyFile", "tls", "tlsCaFile", "requestTimeoutMs", "numRetries", "retryIntervalMs", "kafka.security.protocol",
)  # fmt: skip

EMBEDDED = "embedded:"
_HOST = re.compile(r"[^\s:;,/]+|\[[0-9a-fA-F:.]+\]")
_PORTS = 65_536
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_PROTOCOLS = {"plaintext": False, "sasl_plaintext": False, "ssl": True, "sasl_ssl": True}
"""Of Kafka, and whether that is with TLS."""
_CONNECTION_WORDS = frozenset(name.lower() for name in CONNECTION_OPTIONS)
_SECRET_WORDS = frozenset({"secretkey", "securitytoken"})

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
    token = _secret(reader, "securityToken", None, env, content)
    if token is not None and access_key is None:
        raise OptionError("securityToken", "***", "a token only together with accessKey and secretKey")
    retries = reader.count("numRetries", "fetchOffset.numRetries", least=0)
    tls, ca_file = _tls(reader, content)
    return Access(
        nameserver=_addresses(nameserver),
        access_key=access_key,
        secret_key=secret_key,
        security_token=token,
        tls=tls,
        tls_ca_file=ca_file,
        request_ms=reader.span_ms("requestTimeoutMs", 3_000),
        retries=3 if retries is None else retries,
        retry_ms=reader.span_ms("retryIntervalMs", 200, "fetchOffset.retryIntervalMs"),
    )


def _addresses(text: str) -> str:
    """Kafka's notebooks have commas between them."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if text.strip() != EMBEDDED and (not addresses or not all(map(_is_address, addresses))):
        raise OptionError("nameserver", text, "host:port, several with ; between them")
    return ";".join(addresses)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(_HOST.fullmatch(host)) and port.isascii() and port.isdecimal() and 0 < int(port) < _PORTS


def _tls(reader: OptionReader, content: Lookup) -> tuple[bool, str | None]:
    ca_file = reader.text("tlsCaFile")
    protocol = reader.choice("kafka.security.protocol", "plaintext", _PROTOCOLS)
    is_on = reader.flag("tls", default=protocol or ca_file is not None)
    if ca_file is None:
        return is_on, None
    if not is_on:
        raise OptionError("tlsCaFile", ca_file, "a file only with tls, which is false")
    if _CERTIFICATE not in (content(ca_file) or ""):
        raise OptionError(
            "tlsCaFile", ca_file, "a PEM file that this process can read, with certificates in it"
        )
    return is_on, ca_file


def connection_part(options: Mapping[str, str]) -> dict[str, str]:
    """Of the options of a source those that a sink of the same cluster takes too."""
    return {name: value for name, value in options.items() if name.lower() in _CONNECTION_WORDS}


def is_open_secret(name: str, value: str) -> bool:
    """Whether an option is a secret that stands there for everybody to read."""
    return name.strip().lower() in _SECRET_WORDS and not value.strip().startswith("${")


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
