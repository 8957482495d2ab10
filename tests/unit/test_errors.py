import pytest

from trimtab import errors
from trimtab.errors import RESPONSE_ERRORS, error_from_response
from trimtab.wire.codes import ResponseCode


def test_every_response_code_but_success_has_one_class() -> None:
    assert set(RESPONSE_ERRORS) == {int(code) for code in ResponseCode} - {ResponseCode.SUCCESS}


def test_the_text_says_what_was_asked_of_whom_and_what_to_do() -> None:
    error = error_from_response(
        17, asked="route of topic 'orders'", peer="10.0.0.5:9876", remark="No route info"
    )
    assert isinstance(error, errors.TopicNotFoundError)
    assert str(error) == (
        "route of topic 'orders': 10.0.0.5:9876 answered 17 TopicNotFound (No route info); "
        "create the topic, or let the broker create topics (autoCreateTopicEnable)"
    )


def test_a_code_nobody_knows_keeps_its_number() -> None:
    error = error_from_response(4711, asked="send", peer="b:1")
    assert isinstance(error, errors.UnknownResponseError)
    assert error.response_code == 4711
    assert not error.retriable


@pytest.mark.parametrize(
    ("code", "retriable", "indeterminate"),
    [
        (ResponseCode.SYSTEM_BUSY, True, False),
        (ResponseCode.SYSTEM_ERROR, True, True),
        (ResponseCode.FLUSH_DISK_TIMEOUT, False, True),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, False, True),
        (ResponseCode.TOPIC_NOT_EXIST, False, False),
        (ResponseCode.MESSAGE_ILLEGAL, False, False),
        (ResponseCode.GO_AWAY, True, False),
    ],
)
def test_two_questions_are_answered_by_attributes(code: int, retriable: bool, indeterminate: bool) -> None:
    error = error_from_response(code, asked="send", peer="b:1")
    assert (error.retriable, error.indeterminate) == (retriable, indeterminate)


def test_two_classes_for_one_code_do_not_import() -> None:
    with pytest.raises(TypeError, match="code 17 has two classes"):

        class Twin(errors.ResponseError, code=17, advice="none"):
            pass
