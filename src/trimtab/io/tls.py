"""TLS, on or off. On means: 1.2 or later, and a client knows whom it talks to.

There is no mode in which a port takes both: who forgot TLS must hear of it. A port with TLS ends the connection of a client that
speaks none, and one without ends that of a client that speaks it (`serving` does that), each with a line in the log.
"""

import logging
import ssl
from pathlib import Path

from trimtab.errors import TrimtabError

_log = logging.getLogger(__name__)

HANDSHAKE_RECORD = b"\x16\x03"
"""How every TLS connection begins: a handshake record of version 3.x. As the length of a frame it would be 352 MiB."""

_NO_TLS_AT_ALL = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
)


class TlsError(TrimtabError):
    """A certificate or key that cannot be used."""


class _ReportedHandshake(ssl.SSLObject):
    """The loop drops a connection whose handshake fails without a word; this one says why."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if error.reason in _NO_TLS_AT_ALL:
                _log.warning(
                    "a client spoke no TLS to a port that wants it, and is closed: turn TLS on at the client"
                )
            else:
                _log.warning("a TLS handshake failed, and the client is closed: %s", error.reason or error)
            raise


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """For listening: the certificate chain in `cert` and its private `key`, both PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslobject_class = _ReportedHandshake
    reload_certificate(context, cert, key)
    return context


def reload_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Gives a listening context another certificate. Connections that stand go on, new ones get it."""
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise TlsError(
            f"certificate {cert} with key {key} cannot be used: {error}; name two PEM files that belong together"
        ) from error


def client_context(ca: Path | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """For connecting: trusts the certificates in `ca`, else those that the system trusts, and checks the server's name.

    Without `verify` anybody can be the server; that is for a look at a broken set-up, not for work.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise TlsError(
            f"the CA file {ca} cannot be used: {error}; name a PEM file with certificates"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        _log.warning("TLS without verification: whoever is in between can read and change everything")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def own_client_context(cert: Path) -> ssl.SSLContext:
    """For connecting to a server that has this very certificate, whatever name it is for: one of the same process."""
    context = client_context(cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase, readable by this user only")
