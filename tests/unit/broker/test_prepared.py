"""Properties on their way into the store: what is found in them is what recovery finds in what was stored."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.prepared import Preparer, prepare
from trimtab.broker.shapes import shape_of
from trimtab.broker.store import keys_of
from trimtab.wire.hashing import tags_code
from trimtab.wire.properties import decode_properties, decode_text, find_property

CLUSTER = b"\x02CLUSTER\x01c"
pieces = st.sampled_from(
    [b"\x01", b"\x02", b" ", b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"WAIT\x01true", b"WAIT\x01", b"a", b"\xff"]
)  # fmt: skip
odd = st.lists(pieces, max_size=12).map(b"".join)
usual = st.builds(
    lambda unique, keys, tag, wait: b"\x02".join(
        [
            b"UNIQ_KEY\x01" + unique,
            *([b"KEYS\x01" + keys] if keys else []),
            b"WAIT\x01true",
            b"TAGS\x01" + tag,
        ][:: -1 if wait else 1]
    ),
    st.sampled_from([b"U1", b"U2", b"U\x02", b"U\x01"]),
    st.sampled_from([b"", b"k", b"k l"]),
    st.sampled_from([b"red", b"blue"]),
    st.booleans(),
)
properties = st.one_of(usual, odd)


@given(
    properties, st.sampled_from([CLUSTER, b"\x02common\x01yes" + CLUSTER, b"\x02TAGS\x01of all" + CLUSTER])
)
def test_what_is_found_is_what_recovery_finds(sent: bytes, suffix: bytes) -> None:
    prepared = prepare(sent, suffix)
    tag = find_property(prepared.properties, b"TAGS")
    assert prepared.tags_code == (0 if tag is None else tags_code(decode_text(tag)))
    assert list(prepared.keys) == keys_of(prepared.properties)


@given(properties)
def test_wait_goes_the_cluster_comes_and_all_else_stays(sent: bytes) -> None:
    expected = decode_properties(sent)
    expected.pop("WAIT", None)
    assert decode_properties(prepare(sent, CLUSTER).properties) == expected | {"CLUSTER": "c"}


@given(st.lists(st.tuples(properties, st.sampled_from([CLUSTER, b"\x02x\x01y" + CLUSTER])), max_size=6))
def test_remembering_the_last_ones_changes_nothing(sent: list[tuple[bytes, bytes]]) -> None:
    preparer = Preparer()
    for one, suffix in sent:
        assert preparer.prepare(one, suffix) == prepare(one, suffix)


@given(st.lists(properties, max_size=4), st.lists(usual, min_size=1, max_size=6), st.booleans())
def test_several_are_prepared_as_each_of_them(before: list[bytes], sent: list[bytes], is_like: bool) -> None:
    preparer = Preparer()
    for one in before:
        preparer.prepare(one, CLUSTER)
    if is_like:
        sent = [sent[0]] * len(sent)
        preparer.prepare(sent[0], CLUSTER)
    together = preparer.prepare_together(sent, CLUSTER)
    singly = [prepare(one, CLUSTER) for one in sent]
    assert together.properties == [one.properties for one in singly]
    assert together.tags_codes == [one.tags_code for one in singly]
    assert together.keys == [one.keys for one in singly]


stamped = st.builds(
    lambda unique, stamp, tag, keys, order: b"\x02".join(
        [b"UNIQ_KEY\x01" + unique, b"SPARK_ROW\x01" + stamp, b"TAGS\x01" + tag, b"KEYS\x01" + keys][::order]
    ),
    st.sampled_from([b"U1", b"U2", b"U\x02", b"U\x01"]),
    st.sampled_from([b"s1", b"s2", b"s\x02", b"s\x01", b"\x02TAGS\x01a", b"U1"]),
    st.sampled_from([b"red", b"ray"]),
    st.sampled_from([b"k l", b"l k", b"k"]),
    st.sampled_from([1, -1]),
)
suffixes = st.sampled_from([CLUSTER, b"\x02SPARK_ROW\x01s1" + CLUSTER, b"\x02UNIQ_KEY\x01U1" + CLUSTER])


def told(preparer: Preparer, sent: list[bytes], suffix: bytes) -> list[tuple[bytes, int, tuple[bytes, ...]]]:
    together = preparer.prepare_together(sent, suffix)
    return list(zip(*together, strict=True))


@given(
    st.lists(
        st.tuples(st.lists(st.one_of(stamped, usual, odd), min_size=1, max_size=5), suffixes), max_size=4
    )
)
def test_several_that_differ_in_more_than_one_value_are_prepared_as_each_of_them(
    batches: list[tuple[list[bytes], bytes]],
) -> None:
    preparer = Preparer()
    for sent, suffix in batches:
        singly = [prepare(one, suffix) for one in sent]
        assert told(preparer, sent, suffix) == [(one.properties, one.tags_code, one.keys) for one in singly]


def test_rows_of_spark_have_one_shape() -> None:
    rows = [
        b"UNIQ_KEY\x01%04d\x02WAIT\x01true\x02SPARK_ROW\x01q:1:%04d\x02TAGS\x01t" % (at, 9 * at)
        for at in range(5)
    ]
    stored = prepare(rows[0], CLUSTER).properties
    shape = shape_of(rows[0], rows[1], CLUSTER, stored)
    assert shape is not None
    values = shape.values_in(rows, CLUSTER)
    assert values is not None
    assert values[shape.names.index(b"UNIQ_KEY")] == [b"%04d" % at for at in range(5)]
    assert shape.stored(values) == [prepare(row, CLUSTER).properties for row in rows]


def test_messages_with_a_key_and_a_tag_each_have_one_shape() -> None:
    rows = [b"KEYS\x01o-%d x\x02UNIQ_KEY\x01%04d\x02TAGS\x01t%d" % (at, at, at) for at in range(5)]
    first = prepare(rows[0], CLUSTER)
    shape = shape_of(rows[0], rows[-1], CLUSTER, first.properties)
    assert shape is not None
    values = shape.values_in(rows, CLUSTER)
    assert values is not None
    singly = [prepare(row, CLUSTER) for row in rows]
    assert shape.stored(values) == [one.properties for one in singly]
    assert shape.keys(values, first.keys) == [one.keys for one in singly]
    assert shape.tags_codes(values, first.tags_code) == [one.tags_code for one in singly]


def test_a_tag_of_the_whole_batch_goes_before_one_that_differs() -> None:
    suffix = b"\x02TAGS\x01of all" + CLUSTER
    rows = [b"UNIQ_KEY\x01%04d\x02TAGS\x01t%d" % (at, at) for at in range(5)]
    assert shape_of(rows[0], rows[-1], suffix, prepare(rows[0], suffix).properties) is None
    assert len(set(Preparer().prepare_together(rows, suffix).tags_codes)) == 1
