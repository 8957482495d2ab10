"""Names in a namespace, by Java's rules."""

import pytest

from trimtab.client.namespaces import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("bare", "wrapped"),
    [
        ("orders", "prod%orders"),
        ("%RETRY%billing", "%RETRY%prod%billing"),
        ("%DLQ%billing", "%DLQ%prod%billing"),
    ],
)
def test_there_and_back(bare: str, wrapped: str) -> None:
    assert with_namespace("prod", bare) == wrapped
    assert with_namespace("prod", wrapped) == wrapped
    assert without_namespace("prod", wrapped) == bare
    assert without_namespace("other", wrapped) == wrapped
    assert with_namespace(None, bare) == bare
    assert without_namespace(None, wrapped) == wrapped


@pytest.mark.parametrize(
    "name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "CID_RMQ_SYS_x", ""]
)
def test_what_belongs_to_the_system_belongs_to_no_namespace(name: str) -> None:
    assert with_namespace("prod", name) == name
