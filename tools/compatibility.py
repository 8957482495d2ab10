"""Writes docs/compatibility.md from the handlers that are registered: `python tools/compatibility.py`."""

from pathlib import Path

from trimtab.broker import handlers as _handlers  # noqa: F401 - declares every handler
from trimtab.broker.requests import HANDLERS
from trimtab.names.handlers import HANDLERS as NAMES_HANDLERS
from trimtab.wire.codes import RequestCode

ASKED_BY_BROKERS = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
}

HEAD = """# Compatibility

What the embedded servers answer, by request code. This page is written by `tools/compatibility.py` from the handlers themselves; a test fails when it
is old. A code that is not served is answered with REQUEST_CODE_NOT_SUPPORTED (3), never with silence.

The interop suites (`make interop`) run the stock Java clients 4.9.3 and 5.5.0, mqadmin of both and client-go against these servers and against Apache's
own, with the same test bodies.

| code | name | broker | name server |
|---|---|---|---|
"""

TAIL = """
Not there, and said so: replication and slaves (the embedded broker is one node), DLedger and controller, POP consumption (a 5.x client falls back to pull
by itself), static topics, the gRPC proxy, filter servers (dead in Apache too, and the hole of CVE-2023-33246), changing a name server's settings over the wire.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_row(code) for code in RequestCode) + TAIL


def _row(code: RequestCode) -> str:
    broker = "yes" if code in HANDLERS else "asks clients" if code in ASKED_BY_BROKERS else "–"
    names = "yes" if code in NAMES_HANDLERS else "–"
    return f"| {code.value} | {code.name} | {broker} | {names} |\n"


if __name__ == "__main__":
    Path("docs/compatibility.md").write_text(page())
