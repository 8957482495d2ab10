"""Message ids."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.hosts import host_bytes
from trimtab.wire.ids import (
    Month,
    UniqueIds,
    born_ms_of,
    decode_offset_message_id,
    decode_unique_id,
    offset_message_id,
)

IP = bytes([192, 168, 1, 7])
DAY_MS = 86_400_000


def month_in(zone: str) -> Month:
    def month(now_ms: int) -> tuple[int, int]:
        first = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone)).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        following = (first + timedelta(days=32)).replace(day=1)
        return int(first.timestamp() * 1000), int(following.timestamp() * 1000)

    return month


def ms(*when: int, zone: str = "UTC") -> int:
    return int(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type, misc]


def test_an_offset_message_id_is_address_and_place() -> None:
    assert offset_message_id(host_bytes("10.0.0.1:10911"), 4) == "0A00000100002A9F0000000000000004"


def test_an_offset_message_id_is_read() -> None:
    parts = decode_offset_message_id("0A00000100002A9F0000000000000004")
    assert (parts.address, parts.physical_offset) == ("10.0.0.1:10911", 4)
    assert decode_offset_message_id("0a00000100002a9f0000000000000004") == parts


def test_an_offset_message_id_may_have_a_long_address() -> None:
    host = host_bytes("[2001:db8::1]:10911")
    text = offset_message_id(host, -1)
    assert len(text) == 56
    assert decode_offset_message_id(text) == (host, -1)


@pytest.mark.parametrize(
    "text", ["", "0A", "G" * 32, "0" * 31, "0" * 33, "0" * 55, " " * 32, "00 " * 10 + "00", "²" * 32]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    for decode in (decode_offset_message_id, decode_unique_id):
        with pytest.raises(ProtocolError):
            decode(text)


def test_a_unique_id_is_address_process_loader_time_and_counter() -> None:
    now_ms = ms(2024, 5, 3, 4, 5, 6)
    ids = UniqueIds(IP, 0x12345, 0x14AE5A5, month_in("UTC"))
    since = f"{now_ms - ms(2024, 5, 1):08X}"
    assert ids.next(now_ms) == f"C0A801072345014AE5A5{since}0000"
    assert ids.next(now_ms) == f"C0A801072345014AE5A5{since}0001"
    assert ids.next(now_ms + 1)[-12:-4] == f"{now_ms + 1 - ms(2024, 5, 1):08X}"


def test_the_parts_of_a_unique_id_come_back() -> None:
    now_ms = ms(2024, 5, 3)
    parts = decode_unique_id(UniqueIds(IP, -1, -1, month_in("UTC")).next(now_ms))
    assert parts == (IP, 0xFFFF, 0xFFFFFFFF, 2 * DAY_MS, 0)


def test_the_counter_starts_again_after_sixteen_bits() -> None:
    ids = UniqueIds(IP, 1, 2, month_in("UTC"))
    given = [ids.next(ms(2024, 5, 3)) for _ in range(0x10001)]
    assert given[0] == given[0x10000]
    assert len(set(given)) == 0x10000


def test_several_ids_are_those_that_one_by_one_would_give() -> None:
    now_ms = ms(2024, 5, 3)
    ids, same = UniqueIds(IP, 1, 2, month_in("UTC")), UniqueIds(IP, 1, 2, month_in("UTC"))
    given = [ids.next(now_ms), *ids.several(300, now_ms), ids.next(now_ms), *ids.several(2, now_ms + 1)]
    assert given == [same.next(now_ms) for _ in range(302)] + [same.next(now_ms + 1) for _ in range(2)]


def test_the_parts_of_several_ids_make_the_same_ids() -> None:
    now_ms = ms(2024, 5, 3)
    ids, same = UniqueIds(IP, 1, 2, month_in("UTC")), UniqueIds(IP, 1, 2, month_in("UTC"))
    head, counts = ids.parts_of_several(300, now_ms)
    assert [f"{head}{count & 0xFFFF:04X}" for count in counts] == same.several(300, now_ms)
    assert ids.next(now_ms) == same.next(now_ms)


def test_the_month_begins_in_local_time() -> None:
    now_ms = ms(2024, 5, 1, 0, 30, zone="Asia/Shanghai")
    assert (
        decode_unique_id(UniqueIds(IP, 1, 2, month_in("Asia/Shanghai")).next(now_ms)).since_ms == 30 * 60_000
    )
    assert (
        decode_unique_id(UniqueIds(IP, 1, 2, month_in("UTC")).next(now_ms)).since_ms
        == 30 * DAY_MS - 7.5 * 3_600_000
    )


def test_time_starts_again_with_the_next_month() -> None:
    ids = UniqueIds(IP, 1, 2, month_in("UTC"))
    end_ms = ms(2024, 6, 1)
    assert decode_unique_id(ids.next(end_ms - 1)).since_ms == 31 * DAY_MS - 1
    assert decode_unique_id(ids.next(end_ms)).since_ms == 0


def test_the_calendar_is_asked_once_a_month() -> None:
    asked: list[int] = []

    def month(now_ms: int) -> tuple[int, int]:
        asked.append(now_ms)
        return month_in("UTC")(now_ms)

    ids = UniqueIds(IP, 1, 2, month)
    for day in range(1, 31):
        ids.next(ms(2024, 5, day))
    ids.next(ms(2024, 6, 1))
    assert asked == [ms(2024, 5, 1), ms(2024, 6, 1)]


@pytest.mark.parametrize(
    ("back_ms", "since"),
    [(1, 0), (999_999, 0), (1_000_000, (1 << 32) - 1_000_000), (DAY_MS, (1 << 32) - DAY_MS)],
)
def test_a_clock_set_back_over_the_month_counts_as_its_beginning_if_it_is_near(
    back_ms: int, since: int
) -> None:
    ids = UniqueIds(IP, 1, 2, month_in("UTC"))
    ids.next(ms(2024, 6, 1))
    assert decode_unique_id(ids.next(ms(2024, 6, 1) - back_ms)).since_ms == since


def test_the_last_days_of_a_month_need_the_top_bit() -> None:
    now_ms = ms(2024, 5, 31, 23)
    unique_id = UniqueIds(IP, 1, 2, month_in("UTC")).next(now_ms)
    assert decode_unique_id(unique_id).since_ms > (1 << 31)
    assert born_ms_of(unique_id, now_ms + 1, month_in("UTC")) == now_ms


def test_an_id_of_last_month_is_told_by_its_time_not_having_come_yet() -> None:
    month = month_in("Europe/Berlin")
    born_ms = ms(2024, 3, 30, 12, zone="Europe/Berlin")
    unique_id = UniqueIds(IP, 1, 2, month).next(born_ms)
    assert born_ms_of(unique_id, ms(2024, 3, 31, zone="Europe/Berlin"), month) == born_ms
    assert born_ms_of(unique_id, ms(2024, 4, 5, zone="Europe/Berlin"), month) == born_ms


def test_an_id_given_this_very_millisecond_counts_as_last_months_as_in_java() -> None:
    now_ms = ms(2024, 5, 3)
    unique_id = UniqueIds(IP, 1, 2, month_in("UTC")).next(now_ms)
    assert born_ms_of(unique_id, now_ms, month_in("UTC")) == ms(2024, 4, 3)


def test_long_addresses_make_longer_ids() -> None:
    unique_id = UniqueIds(bytes(range(16)), 1, 2, month_in("UTC")).next(ms(2024, 5, 3))
    assert len(unique_id) == 56
    assert decode_unique_id(unique_id).ip == bytes(range(16))


def test_threads_never_get_one_id_twice() -> None:
    ids = UniqueIds(IP, 1, 2, month_in("UTC"))
    now_ms = ms(2024, 5, 3)
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda _: ids.next(now_ms), range(20_000)))
    assert len(set(given)) == 20_000
