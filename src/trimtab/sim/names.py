"""Name servers: which queues there are. Each hears of brokers and queues at its own time, so two may disagree."""

from trimtab.balance.order import sorted_queues
from trimtab.model import MessageQueue


class SimNameServer:
    """One name server's routes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._routes: dict[str, tuple[MessageQueue, ...]] = {}
        self._broker_names: tuple[str, ...] = ()

    def register(self, topic: str, broker_name: str, count: int) -> None:
        """A broker has so many queues of a topic; 0: it is not known here any more."""
        others = [queue for queue in self._routes.get(topic, ()) if queue.broker_name != broker_name]
        mine = [MessageQueue(topic, broker_name, number) for number in range(count)]
        self._routes[topic] = sorted_queues([*others, *mine])
        names = (queue.broker_name for queues in self._routes.values() for queue in queues)
        self._broker_names = tuple(dict.fromkeys(names))

    def routes(self) -> dict[str, tuple[MessageQueue, ...]]:
        """By topic, its queues in order."""
        return dict(self._routes)

    def broker_names(self) -> tuple[str, ...]:
        """Who has these queues."""
        return self._broker_names
