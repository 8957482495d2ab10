"""The ready-made frames of sends are, byte for byte, those of the general encoder."""

import pytest

from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.hot import encode_send_request
from trimtab.wire.send_frames import SendFrames


@pytest.mark.parametrize("topic", ["orders", "%RETRY%g", 'odd"\\ä'])
@pytest.mark.parametrize(("code", "is_batch", "flag"), [(310, False, 0), (320, True, 0), (310, False, 2)])
def test_same_bytes(topic: str, code: int, is_batch: bool, flag: int) -> None:
    frames = SendFrames(group="g%s", topic=topic, queue_id=3, default_topic="TBW102", default_topic_queues=4)
    found = frames.encode(
        code, opaque=77, flag=flag, sys_flag=5, born_ms=1_700_000_000_000, message_flag=-9,
        properties="UNIQ_KEY\x01A\x02TAGS\x01ü", is_batch=is_batch, body=[b"\x00", b"body"], body_bytes=5,
    )  # fmt: skip
    header = SendMessageV2(
        producer_group="g%s", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=3, sys_flag=5,
        born_timestamp=1_700_000_000_000, flag=-9, properties="UNIQ_KEY\x01A\x02TAGS\x01ü", reconsume_times=0,
        batch=is_batch,
    )  # fmt: skip
    assert found == encode_send_request(code, header, opaque=77, flag=flag, body=b"\x00body")
