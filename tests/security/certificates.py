"""Certificates that live for one test run."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Identity:
    """The files of one server, and of the authority that vouches for it."""

    cert: Path
    key: Path
    ca: Path


def identity(directory: Path, name: str = "127.0.0.1", *, expires: datetime | None = None) -> Identity:
    """A new authority and a certificate of its own for `name`."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    issued = authority.issue_cert(name, not_after=expires)
    files = Identity(directory / "cert.pem", directory / "key.pem", directory / "ca.pem")
    files.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files.key)
    authority.cert_pem.write_to_path(files.ca)
    return files
