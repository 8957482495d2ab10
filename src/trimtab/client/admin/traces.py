"""Trace records: what clients write into the trace topic about messages. PURE.

A body is records, each ended by 0x02, of fields with 0x01 between them. Which fields there are grew with the versions; what is
missing is None, and a record that cannot be read is passed over: it is somebody else's.
"""

from collections.abc import Iterable

from trimtab.client.admin.rows import TraceStep

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_RESULTS = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")


def steps_of(message_id: str, bodies: Iterable[bytes]) -> tuple[TraceStep, ...]:
    """What the bodies tell of one message, in the order of time."""
    records = [
        record.split("\x01")
        for body in bodies
        for record in body.decode(errors="replace").split("\x02")
        if record
    ]
    receptions = {record[4]: record for record in records if record[0] == "SubBefore" and len(record) >= 8}
    steps = [
        step for record in records for step in [_step(message_id, record, receptions)] if step is not None
    ]
    return tuple(sorted(set(steps), key=lambda step: (step.at_ms, step.what != "sent")))


def _step(message_id: str, record: list[str], receptions: dict[str, list[str]]) -> TraceStep | None:
    try:
        match record[0]:
            case "Pub" if record[5] == message_id:
                return _sent(record)
            case "SubBefore" if record[5] == message_id:
                return _received(record)
            case "SubAfter" if record[2] == message_id:
                return _handled(record, receptions.get(record[1]))
            case "EndTransaction" if record[5] == message_id:
                return _ended(record)
    except (IndexError, ValueError):
        return None
    return None


def _sent(record: list[str]) -> TraceStep:
    ok = record[12] if len(record) == 13 else record[13]
    return TraceStep(
        what="sent",
        at_ms=int(record[1]),
        group=record[3],
        ok=ok == "true",
        cost_ms=int(record[10]),
        topic=record[4],
        host=record[8],
        detail=("normal", "half", "commit", "delay")[int(record[11])],
    )


def _received(record: list[str]) -> TraceStep:
    return TraceStep(what="received", at_ms=int(record[1]), group=record[3], ok=True, retries=int(record[6]))


def _handled(record: list[str], reception: list[str] | None) -> TraceStep:
    began_ms = 0 if reception is None else int(reception[1])
    code = int(record[6]) if len(record) > 6 else -1
    return TraceStep(
        what="handled",
        at_ms=int(record[7]) if len(record) > 8 else began_ms + int(record[3]),
        group=record[8] if len(record) > 8 else ("" if reception is None else reception[3]),
        ok=record[4] == "true",
        cost_ms=int(record[3]),
        retries=None if reception is None else int(reception[6]),
        detail=_RESULTS[code] if 0 <= code < len(_RESULTS) else None,
    )


def _ended(record: list[str]) -> TraceStep:
    return TraceStep(
        what="transaction-ended",
        at_ms=int(record[1]),
        group=record[3],
        ok=record[11] == "COMMIT_MESSAGE",
        topic=record[4],
        host=record[8],
        detail=record[11],
    )
