"""CONFIG: a fixed list, whatever the view."""

from collections.abc import Iterable, Sequence

from trimtab.model import MessageQueue


class ByConfig:
    """The queues it was made with. As in Java it checks nothing: two members may well name the same queue."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self,
        group: str,  # noqa: ARG002
        me: str,  # noqa: ARG002
        queues: Sequence[MessageQueue],  # noqa: ARG002
        members: Sequence[str],  # noqa: ARG002
    ) -> tuple[MessageQueue, ...]:
        return self._queues
