"""The compiled SQL92 filters of subscriptions, by group and topic."""

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.broker.sql92 import Filter, FilterSyntaxError, compile_sql92
from trimtab.wire.bodies import SubscriptionData

TAG = "TAG"


def is_tag_filter(expression_type: str | None) -> bool:
    """Tags are the default and need no compiling."""
    return expression_type in (None, "", TAG)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A filter and the version of the subscription it was made for."""

    filter: Filter
    version: int


class FilterTable:
    """Filters that heartbeats brought. One that does not compile is not kept, so that pulls say so."""

    def __init__(self) -> None:
        self._filters: dict[tuple[str, str], Compiled] = {}

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Takes the subscriptions of a group; what is no longer filtered is forgotten."""
        topics = set()
        for subscription in subscriptions:
            if is_tag_filter(subscription.expression_type):
                continue
            topics.add(subscription.topic)
            self._compile(group, subscription)
        for name in [name for name in self._filters if name[0] == group and name[1] not in topics]:
            del self._filters[name]

    def get(self, group: str, topic: str) -> Compiled | None:
        """The filter of a group on a topic."""
        return self._filters.get((group, topic))

    def drop_group(self, group: str) -> None:
        """Nobody of the group is left."""
        self.register(group, ())

    def _compile(self, group: str, subscription: SubscriptionData) -> None:
        name, text = (group, subscription.topic), subscription.sub_string or ""
        known = self._filters.get(name)
        if known is not None and known.version >= subscription.sub_version:
            return
        if known is not None and known.filter.expression == text:
            self._filters[name] = Compiled(known.filter, subscription.sub_version)
            return
        try:
            self._filters[name] = Compiled(compile_sql92(text), subscription.sub_version)
        except FilterSyntaxError:
            self._filters.pop(name, None)
