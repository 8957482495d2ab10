"""Trace records as rows: ours, Java's, old ones and broken ones."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.client.tracing import sub_after, sub_before
from trimtab.pipelines.trace_records import TraceRow, member_of, rows_of

REQUEST = "0A000005" + "04D2" + "1B2C3D4E" + "0000A1B2" + "0001"


def test_what_our_consumers_write_is_read() -> None:
    began = sub_before(
        now_ms=1_000, region="r", group="billing", request_id=REQUEST, message_id="m1", retry_times=2, keys=("k",)
    )  # fmt: skip
    ended = sub_after(
        now_ms=1_030, group="billing", request_id=REQUEST, message_id="m1", cost_ms=30, is_success=False, keys=(), context_code=2
    )  # fmt: skip
    first, second = rows_of((began.text + ended.text).encode())
    assert first == TraceRow("SubBefore", "m1", True, 1_000, "billing", request_id=REQUEST, retries=2)
    assert second == TraceRow(
        "SubAfter", "m1", False, 1_030, "billing", request_id=REQUEST, cost_ms=30, result="EXCEPTION"
    )


def test_old_records_have_no_time_of_their_end() -> None:
    [row] = rows_of(f"SubAfter\x01{REQUEST}\x01m1\x0130\x01true\x01k".encode() + b"\x02")
    assert (row.at_ms, row.group, row.result, row.cost_ms, row.ok) == (None, None, None, 30, True)


def test_a_sent_record_names_its_topic_in_both_forms() -> None:
    fields = ["Pub", "5", "r", "shop", "orders", "m1", "t", "k", "host", "9", "3", "0"]
    for tail in (["true"], ["offset-id", "true"], ["offset-id", "true", "client"]):
        [row] = rows_of("\x01".join([*fields, *tail]).encode())
        assert (row.topic, row.message_id, row.ok) == ("orders", "m1", True)


@given(st.binary())
def test_what_cannot_be_read_is_passed_over(body: bytes) -> None:
    assert list(rows_of(b"SubBefore\x01x\x02Recall\x011\x02" + body + b"\x02SubBefore\x011\x02")) == list(
        rows_of(body)
    )


def test_a_request_id_tells_the_consumer() -> None:
    assert member_of(REQUEST) == "10.0.0.5@1234#1b2c3d4e"
    assert member_of("20010DB8" + "0" * 23 + "1" + REQUEST[8:]) == "2001:db8::1@1234#1b2c3d4e"
    assert member_of("short") == "short"
    assert member_of("Z" * 32) == "Z" * 20
