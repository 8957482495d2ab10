"""Message-trace records as rows, whoever wrote them: Java's clients or ours. PURE.

A record does not name the consumer. Its request id does: it is a unique id of the consumer's process, and what comes before the
time in it (address, process, class loader) is the same in all of a consumer's records.
"""

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

RECORD_END = "\x02"
FIELD_END = "\x01"
RESULTS = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""How a handler ended, by Java's numbers."""

_TIME_AND_COUNT_CHARACTERS = 12
_PROCESS_CHARACTERS = 12
_V4_CHARACTERS = 8
_V6_CHARACTERS = 32


class TraceRow(NamedTuple):
    """One record; what a kind of record does not tell is None."""

    kind: str
    message_id: str
    ok: bool
    at_ms: int | None
    group: str | None
    request_id: str | None = None
    topic: str | None = None
    retries: int | None = None
    cost_ms: int | None = None
    result: str | None = None


def rows_of(body: bytes) -> Iterator[TraceRow]:
    """The records of a trace message that tell of sending and handling; what cannot be read is passed over."""
    for record in body.decode(errors="replace").split(RECORD_END):
        row = _row(record.split(FIELD_END))
        if row is not None:
            yield row


def _row(fields: list[str]) -> TraceRow | None:
    try:
        match fields[0]:
            case "Pub":
                return _sent(fields)
            case "SubBefore":
                return _began(fields)
            case "SubAfter":
                return _ended(fields)
    except (IndexError, ValueError):
        return None
    return None


def _sent(fields: list[str]) -> TraceRow:
    ok = fields[12] if len(fields) == 13 else fields[13]
    return TraceRow(
        kind="Pub",
        at_ms=int(fields[1]),
        group=fields[3],
        message_id=fields[5],
        topic=fields[4],
        cost_ms=int(fields[10]),
        ok=ok == "true",
    )


def _began(fields: list[str]) -> TraceRow:
    return TraceRow(
        kind="SubBefore",
        at_ms=int(fields[1]),
        group=fields[3],
        request_id=fields[4],
        message_id=fields[5],
        retries=int(fields[6]),
        ok=True,
    )


def _ended(fields: list[str]) -> TraceRow:
    code = int(fields[6]) if len(fields) > 6 else -1
    has_time = len(fields) > 8
    return TraceRow(
        kind="SubAfter",
        at_ms=int(fields[7]) if has_time else None,
        group=fields[8] if has_time else None,
        request_id=fields[1],
        message_id=fields[2],
        cost_ms=int(fields[3]),
        ok=fields[4] == "true",
        result=RESULTS[code] if 0 <= code < len(RESULTS) else None,
    )


def member_of(request_id: str) -> str:
    """`address@process#loader` of the consumer that gave out a request id; the id's own text if it is of another form."""
    who = request_id[:-_TIME_AND_COUNT_CHARACTERS]
    host, process = who[:-_PROCESS_CHARACTERS], who[-_PROCESS_CHARACTERS:]
    if len(host) not in (_V4_CHARACTERS, _V6_CHARACTERS):
        return who or request_id
    try:
        address = ipaddress.ip_address(bytes.fromhex(host))
        return f"{address}@{int(process[:4], 16)}#{process[4:].lower()}"
    except ValueError:
        return who
