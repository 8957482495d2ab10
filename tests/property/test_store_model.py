"""The store against a dictionary: whatever is done to it in whatever order, it answers what lists would answer."""

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.property.examples import examples
from trimtab.broker.store import ReadStatus, Store, StoreSettings, TimeRule
from trimtab.broker.store.scrub import verify
from trimtab.io.disk import MemoryDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, StorableTogether, StoredMessage, decode_messages

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
START_MS = 1_700_000_000_000
TOPICS = st.sampled_from(["a", "b-c", "%RETRY%g"])
QUEUES = st.integers(0, 2)
TAGS = st.sampled_from(["", "red", "green"])
KEYS = st.sampled_from(["k1", "k2", "k3"])


class Known:
    """A message as the model has it."""

    def __init__(self, body: bytes, tag: str, keys: list[str], stored_ms: int, physical_offset: int) -> None:
        self.body = body
        self.tag = tag
        self.keys = keys
        self.stored_ms = stored_ms
        self.physical_offset = physical_offset


class StoreAgainstModel(RuleBasedStateMachine):
    @initialize(segment=st.sampled_from([1024, 4096]), flush=st.sampled_from(["sync", "async"]))
    def start(self, segment: int, flush: str) -> None:
        self.disk = MemoryDisk()
        self.settings = StoreSettings(
            flush="sync" if flush == "sync" else "async",
            segment_bytes=segment,
            checkpoint_bytes=2048,
            queue_file_entries=64,
            open_files_max=4,
            disk_free_bytes_min=0,
            retention_ms=0,
            retention_bytes=8192,
            scan_entries_max=5,
        )
        self.store = Store.open(self.disk, self.settings)
        self.now_ms = START_MS
        self.queues: dict[tuple[str, int], list[Known]] = {}
        self.number = 0
        self.unwritten = 0

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        tag=TAGS,
        keys=st.lists(KEYS, max_size=2, unique=True),
        size=st.integers(0, 300),
    )
    def append(self, topic: str, queue_id: int, tag: str, keys: list[str], size: int) -> None:
        body, properties = self.next_message(tag, keys, size)
        message = Storable(topic.encode(), body, properties, queue_id, START_MS, HOST)
        appended = self.store.append(
            message, self.now_ms, HOST, tags_code(tag), [key.encode() for key in keys]
        )
        known = self.queues.setdefault((topic, queue_id), [])
        assert appended.queue_offset == len(known)
        known.append(Known(body, tag, keys, self.now_ms, appended.physical_offset))
        self.unwritten += 1

    def next_message(self, tag: str, keys: list[str], size: int) -> tuple[bytes, bytes]:
        self.number += 1
        body = b"%d:" % self.number + b"x" * size
        pairs = [("TAGS", tag)] * bool(tag) + [("KEYS", " ".join(keys))] * bool(keys)
        return body, "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        several=st.lists(st.tuples(TAGS, st.lists(KEYS, max_size=2, unique=True), st.integers(0, 300)), min_size=1, max_size=9),
    )  # fmt: skip
    def append_together(self, topic: str, queue_id: int, several: list[tuple[str, list[str], int]]) -> None:
        count = len(several)
        made = [self.next_message(tag, keys, size) for tag, keys, size in several]
        bodies, properties = [body for body, _ in made], [of_it for _, of_it in made]
        zeros, born = [0] * count, [START_MS] * count
        messages = StorableTogether(
            topic.encode(), [(queue_id, count)], HOST, bodies, properties, zeros, zeros, born, zeros
        )
        codes = [tags_code(tag) for tag, _, _ in several]
        found_by = [tuple(key.encode() for key in keys) for _, keys, _ in several]
        appended = self.store.append_together(messages, self.now_ms, HOST, codes, found_by)
        known = self.queues.setdefault((topic, queue_id), [])
        assert appended.queue_offsets == list(range(len(known), len(known) + count))
        for body, (tag, keys, _), place in zip(bodies, several, appended.physical_offsets, strict=True):
            known.append(Known(body, tag, keys, self.now_ms, place))
        self.unwritten += 1

    @rule(topic=TOPICS, queue_id=QUEUES, count=st.integers(10, 90))
    def append_many(self, topic: str, queue_id: int, count: int) -> None:
        for number in range(count):
            self.append(
                topic,
                queue_id,
                ("", "red", "green")[number % 3],
                ["k1"] if number % 7 == 0 else [],
                number % 50,
            )

    @rule(passes_ms=st.integers(0, 3))
    def write(self, passes_ms: int) -> None:
        calls: list[object] = []
        end = self.store.write()
        self.store.on_visible(end, calls.append)
        assert calls == [None]
        self.now_ms += passes_ms
        self.unwritten = 0

    @rule()
    def checkpoint(self) -> None:
        self.write(0)
        self.store.tick(self.now_ms * 10_000)

    @rule()
    def retain(self) -> None:
        self.write(0)
        self.store.retain(self.now_ms)

    @rule(rebuild=st.booleans())
    def reopen(self, rebuild: bool) -> None:
        lows = {key: self.store.min_offset(*key) for key in self.queues}
        self.store.close()
        self.unwritten = 0
        assert verify(self.disk) == []
        self.store = Store.open(self.disk, self.settings, rebuild=rebuild)
        assert self.store.report == []
        assert {key: self.store.min_offset(*key) for key in self.queues} == lows

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.unwritten = 0
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    @rule(
        topic=TOPICS, queue_id=QUEUES, offset=st.integers(0, 250), messages_max=st.integers(1, 40),
        bytes_max=st.integers(1, 4000), tag=st.none() | TAGS, only_short=st.booleans(),
    )  # fmt: skip
    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tag: str | None,
        only_short: bool,
    ) -> None:
        self.write(0)
        known = self.queues.get((topic, queue_id))
        low, high = self.store.min_offset(topic, queue_id), len(known or [])
        result = self.store.read(
            topic, queue_id, offset, messages_max=messages_max, bytes_max=bytes_max,
            accept=None if tag is None else partial(int.__eq__, tags_code(tag)),
            accept_message=is_short if only_short else None,
        )  # fmt: skip
        if known is None:
            assert result.status in {ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE}
            return
        assert (result.min_offset, result.max_offset) == (low, high)
        if not low <= offset < high:
            assert (result.status, result.next_offset) == outside(offset, low, high)
            return
        passed = known[offset : result.next_offset]
        wanted = [
            one
            for one in passed
            if (tag is None or one.tag == tag) and (not only_short or len(one.body) < 100)
        ]
        messages = decode_messages(result.body)
        assert [message.body for message in messages] == [one.body for one in wanted]
        assert result.count == len(messages) <= messages_max
        assert len(result.body) <= bytes_max or len(messages) <= 1
        assert result.status is (ReadStatus.FOUND if messages else ReadStatus.NO_MATCHED_MESSAGE)
        assert result.next_offset > offset
        if tag is None and not only_short and len(messages) < min(messages_max, high - offset):
            fits = (
                result.next_offset == high
                or len(result.body) + 91 + len(known[result.next_offset].body) > bytes_max - 100
            )
            assert fits, "the read ended although the next message would have fitted"

    @rule(topic=TOPICS, key=KEYS)
    def query(self, topic: str, key: str) -> None:
        self.write(0)
        expected = [
            one.physical_offset
            for (name, queue_id), known in self.queues.items()
            for one in known[self.store.min_offset(name, queue_id) :]
            if name == topic and key in one.keys
        ]
        found = self.store.query_by_key(topic, key, 64)
        assert [message.physical_offset for message in found] == sorted(expected, reverse=True)[:64]

    @rule(topic=TOPICS, queue_id=QUEUES, at=st.integers(-2, 60))
    def search_time(self, topic: str, queue_id: int, at: int) -> None:
        self.write(0)
        low = self.store.min_offset(topic, queue_id)
        times = [one.stored_ms for one in self.queues.get((topic, queue_id), [])]
        kept = list(enumerate(times))[low:]
        if not kept:
            return
        wanted = START_MS + at
        lower = self.store.offset_by_time(topic, queue_id, wanted, TimeRule.LOWER)
        assert lower == next((offset for offset, time in kept if time >= wanted), len(times))
        upper = self.store.offset_by_time(topic, queue_id, wanted, TimeRule.UPPER)
        assert upper == max([offset for offset, time in kept if time <= wanted], default=low)
        nearest = self.store.offset_by_time(topic, queue_id, wanted)
        assert abs(times[nearest] - wanted) == min(abs(time - wanted) for _, time in kept)
        assert self.store.earliest_store_ms(topic, queue_id) == kept[0][1]

    @rule(topic=TOPICS, queue_id=QUEUES, offset=st.integers(0, 250), beside=st.integers(-3, 3))
    def look_up(self, topic: str, queue_id: int, offset: int, beside: int) -> None:
        self.write(0)
        known = self.queues.get((topic, queue_id), [])
        entry = self.store.entry(topic, queue_id, offset)
        if not self.store.min_offset(topic, queue_id) <= offset < len(known):
            assert entry is None
            return
        assert entry is not None
        assert entry.physical_offset == known[offset].physical_offset
        message = self.store.message_at(entry.physical_offset + beside)
        if beside:
            assert message is None
        else:
            assert message is not None
            assert message.body == known[offset].body

    @invariant()
    def bounds_are_right(self) -> None:
        for key, known in self.queues.items():
            assert 0 <= self.store.min_offset(*key) <= self.store.max_offset(*key) <= len(known)
            if not self.unwritten:
                assert self.store.max_offset(*key) == (
                    len(known) if self.is_visible() else self.store.max_offset(*key)
                )

    def is_visible(self) -> bool:
        return self.store.visible_end == self.store.written_end

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            assert verify(self.disk) == []


def is_short(message: StoredMessage) -> bool:
    return message.stored_body_bytes < 100


def outside(offset: int, low: int, high: int) -> tuple[ReadStatus, int]:
    if offset < low:
        return ReadStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return ReadStatus.OFFSET_OVERFLOW_ONE, offset
    return ReadStatus.OFFSET_OVERFLOW_BADLY, high


StoreAgainstModel.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestStoreAgainstModel = StoreAgainstModel.TestCase
