"""One flipped bit, anywhere: named, or without any effect. Never a changed message, never one less."""

from random import Random

import pytest

from tests.crash.images import SETTINGS, Sents, make_store, show
from trimtab.broker.store import ReadStatus, StateStatus, Store, StoreDamagedError, StoreError
from trimtab.broker.store.recovery import Scan
from trimtab.broker.store.scrub import verify
from trimtab.sim.disk import SimDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import decode_messages

FLIPS = 2_000


def image_of(*, closed: bool, messages: int = 60) -> tuple[dict[str, bytes], Sents]:
    disk = SimDisk(Random(1))
    store, sents = make_store(disk, messages=messages)
    if closed:
        store.close()
    return disk.image(), sents


def judge(store: Store, sents: Sents) -> bool:
    """Everything is there or refused; True if anything was refused."""
    refused = False
    for (topic, queue_id), sent in sents.items():
        assert store.max_offset(topic, queue_id) == len(sent)
        assert store.min_offset(topic, queue_id) == 0
        for offset, message in enumerate(sent):
            try:
                assert show(store, topic, queue_id, offset) == message.body
            except StoreDamagedError:
                refused = True
            try:
                found = store.query_by_key(topic, f"key{message.body.split(b':')[0].decode()}", 8)
                known_gap = any("index" in sentence for sentence in store.report)
                assert [one.body for one in found] == [message.body] or (known_gap and not found)
            except StoreDamagedError:
                refused = True
    return refused


def judge_filter(store: Store, sents: Sents, tag: str) -> None:
    """A filtered read must not pass over a message because the code of its tag rotted."""
    for (topic, queue_id), sent in sents.items():
        wanted = [message.body for message in sent if message.tag == tag]
        got: list[bytes] = []
        offset = 0
        try:
            while offset < len(sent):
                result = store.read(
                    topic,
                    queue_id,
                    offset,
                    messages_max=4,
                    bytes_max=1 << 20,
                    accept=lambda code: code == tags_code(tag),
                )
                assert result.status in {ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE}
                got += [message.body for message in decode_messages(result.body)]
                offset = result.next_offset
        except StoreDamagedError:
            assert got == wanted[: len(got)]
            continue
        assert got == wanted


def durable_end(disk: SimDisk, image: dict[str, bytes]) -> int:
    """How far a crashed log proves, by itself and its checkpoint, that it was durable."""
    store = Store.open(disk, SETTINGS, chance=Random(1))
    scan = Scan(disk, store._log.bases, 0, store._log.salt, None)
    known = max(frame.head.durable for frame in scan.frames())
    disk.load(image)
    return known


@pytest.mark.parametrize(
    ("closed", "messages", "flips"), [(True, 60, FLIPS // 2), (False, 60, FLIPS // 2), (True, 400, 30)]
)
def test_a_flipped_bit_is_named_or_harmless(closed: bool, messages: int, flips: int) -> None:
    image, sents = image_of(closed=closed, messages=messages)
    disk, chance = SimDisk(Random(1)), Random(7)
    disk.load(image)
    proven = durable_end(disk, image)
    places = [(name, len(data)) for name, data in image.items() if data]
    named = flip = 0
    while flip < flips:
        disk.load(image)
        name, size = chance.choice(places)
        bit = chance.randrange(size * 8)
        if name.startswith("log/") and int(name[4:]) + bit // 8 >= proven and not closed:
            continue  # behind the last proof a damaged frame cannot be told from a torn one
        flip += 1
        disk.flip(name, bit)
        try:
            store = Store.open(disk, SETTINGS, chance=Random(1))
        except StoreError:
            named += 1
            continue
        try:
            named += judge(store, sents) or bool(store.report)
            judge_filter(store, sents, "green")
            state = store.load_state("progress")
            assert state.data in ({b"second"} if state.status is StateStatus.OK else {b"first", b"second"})
        except AssertionError as exc:
            exc.add_note(f"flip {flip}: bit {bit} of {name}, closed={closed}")
            raise
    assert named > flips // 5, "most bits matter"


def test_verify_names_every_flipped_bit_of_the_log_and_the_queues() -> None:
    image, _ = image_of(closed=True)
    disk, chance = SimDisk(Random(1)), Random(8)
    places = [(name, len(data)) for name, data in image.items() if name.startswith(("log/", "index/"))]
    for _ in range(200):
        disk.load(image)
        name, size = chance.choice(places)
        bit = chance.randrange(size * 8)
        disk.flip(name, bit)
        findings = verify(disk)
        assert findings, f"bit {bit} of {name} was not noticed"
        assert any(finding.file == name for finding in findings), f"{name} was not named: {findings}"


def test_a_damaged_message_does_not_hide_the_others() -> None:
    image, sents = image_of(closed=True)
    disk = SimDisk(Random(1))
    disk.load(image)
    victim = sents["alpha", 0][5]
    segment = max(
        name for name in image if name.startswith("log/") and int(name[4:]) <= victim.physical_offset
    )
    disk.flip(segment, (victim.physical_offset - int(segment[4:]) + 88) * 8)
    store = Store.open(disk, SETTINGS, chance=Random(1))
    offset, got = 0, []
    while offset < 5:
        result = store.read("alpha", 0, offset, messages_max=32, bytes_max=1 << 20)
        got += [message.body for message in decode_messages(result.body)]
        offset = result.next_offset
    assert got == [message.body for message in sents["alpha", 0][:5]]
    with pytest.raises(StoreDamagedError, match=segment):
        store.read("alpha", 0, 5, messages_max=32, bytes_max=1 << 20)
    result = store.read("alpha", 0, 6, messages_max=32, bytes_max=1 << 20)
    assert decode_messages(result.body)[0].body == sents["alpha", 0][6].body
