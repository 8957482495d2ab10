"""What the connector refuses, in words that say what to write instead. PURE."""

from collections.abc import Iterable

from trimtab.errors import TrimtabError


class OptionError(TrimtabError):
    """An option of the source or the sink cannot be used; found before any work is done."""

    def __init__(self, option: str, value: str, allowed: str) -> None:
        self.option = option
        self.value = value
        self.allowed = allowed
        super().__init__(f"option {option!r} is {value!r}, which is not possible; allowed: {allowed}")


class DataLossError(TrimtabError):
    """Messages that a query still had to read are gone from the broker."""


class OutageError(TrimtabError):
    """The cluster was away for longer than a stream is told to wait. The checkpoint is as it was."""

    retriable = True

    def __init__(self, asked: str, outage_ms: int, error: TrimtabError) -> None:
        super().__init__(
            f"{asked}: no luck for {outage_ms} ms, which is as long as the option outageTimeoutMs allows; start the query again"
            f" when the cluster is back: nothing is lost. The last answer: {error}"
        )


class SinkSchemaError(TrimtabError):
    """The columns of a DataFrame cannot be written as messages."""


class SinkWriteError(TrimtabError):
    """A row was not stored; the task fails, and Spark runs it again or gives up."""

    indeterminate = True


def one_of(names: Iterable[str]) -> str:
    """Names as people read them."""
    return ", ".join(names)
