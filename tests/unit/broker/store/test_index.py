import pytest

from trimtab.broker.store import StoreDamagedError
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.index import BUCKETS, Gathered, Index, key_hash_of
from trimtab.io.disk import MemoryDisk, opened

EVER = 1 << 60
SEED = key_hash_of(b"T", b"")


def filled(disk: MemoryDisk, *, messages: int = 1000, step: int = 100) -> Index:
    """Message n lies at n * 100, was stored at second n, and has the keys `n` and `even` or `odd`."""
    index = Index(Handles(disk, 4), salt=5)
    for number in range(messages):
        keys = [b"%d" % number, b"odd" if number % 2 else b"even"]
        index.add(keys, SEED, number * 100, number, number * 1000)
        if number % step == step - 1:
            file_chunk(index, disk, (number + 1) * 100)
    return index


def file_chunk(index: Index, disk: MemoryDisk, durable: int) -> None:
    write = index.seal(durable, 1 << 60, force=True)
    assert write is not None
    write.run(disk)
    index.filed(write)


def found(index: Index, key: bytes, begin_ms: int = 0, end_ms: int = EVER) -> list[int]:
    return [
        place // 100
        for source in index.sources(begin_ms, end_ms)
        for place, _ in index.candidates(source, key_hash_of(b"T", key), begin_ms, end_ms)
    ]


def test_every_key_leads_to_its_message_in_memory_and_in_files() -> None:
    index = filled(MemoryDisk(), messages=250)
    assert len(index.chunks) == 2
    for number in range(250):
        assert number in found(index, b"%d" % number)


def test_the_newest_come_first_and_time_bounds_hold() -> None:
    index = filled(MemoryDisk(), messages=350)
    assert found(index, b"even") == list(range(348, -1, -2))
    assert found(index, b"even", 100_000, 110_000) == [110, 108, 106, 104, 102, 100]
    assert found(index, b"never") == []


def test_a_chunk_on_its_way_is_searched_too_and_tried_again() -> None:
    index = filled(MemoryDisk(), messages=50)
    write = index.seal(5000, 1 << 60, force=True)
    assert write is not None
    assert found(index, b"7") == [7]
    assert index.seal(5000, 1 << 60) is write, "until it is filed"


def test_what_is_not_durable_stays_for_the_next_chunk() -> None:
    disk = MemoryDisk()
    index = filled(disk, messages=50)
    file_chunk(index, disk, 2000)
    assert index.covered == 2000
    again = Index(Handles(disk, 4), salt=5)
    assert again.attach(disk, 0, 2000) == []
    assert found(again, b"even") == list(range(18, -1, -2))
    assert found(index, b"even") == list(range(48, -1, -2))


@pytest.mark.parametrize("durable", [1, 99, 100, 101, 2000, 2050, 4900, 4999, 5000, 9000])
def test_a_chunk_ends_where_the_log_is_durable_and_the_rest_knows_its_times(durable: int) -> None:
    disk = MemoryDisk()
    index = filled(disk, messages=50)
    file_chunk(index, disk, durable)
    again = Index(Handles(disk, 4), salt=5)
    assert again.attach(disk, 0, durable) == []
    filed = min(50, -(-durable // 100))
    assert sorted(found(again, b"even") + found(again, b"odd")) == list(range(filed))
    assert sorted(found(index, b"even") + found(index, b"odd")) == list(range(50))
    rest = [(one.oldest_ms, one.newest_ms) for one in index.sources(0, EVER) if isinstance(one, Gathered)]
    assert rest == ([(filed * 1000, 49_999)] if filed < 50 else [])


def test_chunks_come_back_and_stray_ones_are_removed() -> None:
    disk = MemoryDisk()
    filled(disk, messages=300)
    again = Index(Handles(disk, 4), salt=5)
    assert again.attach(disk, 10_000, 20_000) == []
    assert [chunk.log_from for chunk in again.chunks] == [10_000]
    assert len(disk.names("index")) == 1


def test_a_missing_or_damaged_chunk_is_told() -> None:
    disk = MemoryDisk()
    filled(disk, messages=300)
    names = disk.names("index")
    disk.remove(names[1])
    assert "missing" in Index(Handles(disk, 4), salt=5).attach(disk, 0, 30_000)[0]
    with opened(disk, names[0]) as file:
        file.pwrite(b"!", 20)
    assert "damaged" in Index(Handles(disk, 4), salt=5).attach(disk, 0, 30_000)[0]
    disk.remove(names[2])
    assert "missing" in Index(Handles(disk, 4), salt=5).attach(disk, 0, 30_000)[-1]


def test_a_damaged_bucket_is_refused_and_the_others_are_not() -> None:
    disk = MemoryDisk()
    index = filled(disk, messages=100)
    with opened(disk, disk.names("index")[0]) as file:
        file.pwrite(b"!!!!", file.size() - 8)
    outcomes: list[bool | None] = []
    for number in range(100):
        try:
            outcomes.append(number in found(index, b"%d" % number))
        except StoreDamagedError:
            outcomes.append(None)
    assert None in outcomes
    assert True in outcomes
    assert False not in outcomes


def test_old_chunks_are_dropped() -> None:
    disk = MemoryDisk()
    index = filled(disk, messages=300)
    assert index.drop_before(10_000) == disk.names("index")[:1]
    assert found(index, b"even")[-1] == 100


def test_a_chunk_is_made_when_it_is_worth_a_file() -> None:
    index = Index(Handles(MemoryDisk(), 4), salt=5)
    index.add([b"k"], SEED, 0, 0, 0)
    assert index.seal(100, 1000) is None
    assert index.seal(1000, 1000) is not None


def test_keys_spread_over_the_buckets() -> None:
    index = filled(MemoryDisk(), messages=5000, step=10_000)
    sizes = [len(bucket) for bucket in index._gathered.buckets]
    assert len(sizes) == BUCKETS
    with pytest.raises(ValueError, match="0"):
        sizes.index(0)
