"""What a leased member says of its share: one line for each topic, once nothing of it is on its way. PURE."""

from typing import TYPE_CHECKING

from trimtab.balance.rebalance_effects import Changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.balance.holdings import Holdings
    from trimtab.model import MessageQueue


class SharesTold:
    """See the module's own words."""

    def __init__(self, group: str, client_id: str) -> None:
        self._group = group
        self._client_id = client_id
        self._told: dict[str, tuple[MessageQueue, ...]] = {}

    def changes(
        self,
        holdings: "Holdings",
        queues: "Mapping[str, tuple[MessageQueue, ...]]",
        members: int,
        strategy: str,
    ) -> list[Changed]:
        """What has not been told yet of the topics whose holdings changed."""
        in_motion = holdings.topics_in_motion()
        found: list[Changed] = []
        for topic in dict.fromkeys((*queues, *self._told)):
            mine = holdings.held(topic)
            if topic in in_motion or set(mine) == set(self._told.get(topic, ())):
                continue
            self._told[topic] = mine
            found.append(
                Changed(
                    strategy=strategy,
                    group=self._group,
                    topic=topic,
                    client_id=self._client_id,
                    queue_count=len(queues.get(topic, ())),
                    member_count=members,
                    mine=mine,
                )
            )
        return found
