"""Writes docs/compatibility.md from the handlers that are registered and the tests that name them: `python tools/compatibility.py`."""

import re
from pathlib import Path

from trimtab.broker import handlers as _handlers  # noqa: F401 - declares every handler
from trimtab.broker.requests import HANDLERS
from trimtab.names.handlers import HANDLERS as NAMES_HANDLERS
from trimtab.wire.codes import RequestCode

ROOT = Path()  # run from the repository, as the other tools are
TESTS_SHOWN_MAX = 2
ASKED_BY_BROKERS = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
}
PARTLY = {
    RequestCode.UPDATE_BROKER_CONFIG: "partly: settings that may change while it runs; others are refused",
    RequestCode.UPDATE_NAMESRV_CONFIG: "refused: NO_PERMISSION, with the reason",
}
"""Served, and not all of it."""

HEAD = """# Compatibility

What the embedded servers answer, by request code. This page is written by `tools/compatibility.py` from the handlers themselves; a test fails when it
is old. A code that is *refused* is answered with REQUEST_CODE_NOT_SUPPORTED (3) and never with silence, unless another answer stands there. The tests are those that name the code;
mqadmin and the stock clients use many more of them without naming them.

The interop suites (`make interop`) run the stock Java clients 4.9.3 and 5.5.0, mqadmin of both, client-go and the C++ client against these servers and against Apache's
own, with the same test bodies.

| code | name | broker | name server | tests |
|---|---|---|---|---|
"""

TAIL = """
Not there, and said so: replication and slaves (the embedded broker is one node), DLedger and controller, POP consumption (a 5.x client falls back to pull
by itself), static topics, the gRPC proxy, filter servers (dead in Apache too, and the hole of CVE-2023-33246), changing a name server's settings over the wire.
"""


def page() -> str:
    """The whole page."""
    tests = tests_by_code()
    return HEAD + "".join(_row(code, tests.get(code.name, [])) for code in RequestCode) + TAIL


def tests_by_code() -> dict[str, list[str]]:
    """The test modules that name each code, those beside Apache's servers first."""
    found: dict[str, list[str]] = {}
    modules = sorted(
        (ROOT / "tests").rglob("test_*.py"), key=lambda path: ("interop" not in path.parts, path)
    )
    for path in modules:
        for name in sorted(set(re.findall(r"\bRequestCode\.([A-Z][A-Z0-9_]+)", path.read_text()))):
            found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return found


def _row(code: RequestCode, tests: list[str]) -> str:
    broker = _served(code, is_served=code in HANDLERS)
    names = _served(code, is_served=code in NAMES_HANDLERS)
    if broker == names == "–":
        broker = names = "refused"
    if code in ASKED_BY_BROKERS:
        broker, names = "asks clients", "–"
    shown = ", ".join(f"`{path}`" for path in tests[:TESTS_SHOWN_MAX]) or "–"
    return f"| {code.value} | {code.name} | {broker} | {names} | {shown} |\n"


def _served(code: RequestCode, *, is_served: bool) -> str:
    return PARTLY.get(code, "yes") if is_served else "–"


if __name__ == "__main__":
    (ROOT / "docs" / "compatibility.md").write_text(page())
