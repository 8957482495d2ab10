"""`weighted`: shares in proportion to what members can do, given or learned; sticky otherwise."""

from collections.abc import Mapping
from math import fsum, isclose, isfinite

from trimtab.balance.strategies.plans import Plan, View, outsider
from trimtab.balance.strategies.quotas import weighted_quotas
from trimtab.balance.strategies.sticky import known_holdings, nearly, settled, up_to
from trimtab.errors import AllocationError, SettingsError


class Weighted:
    """Quotas by largest remainder. A member of weight 0 gets nothing."""

    name = "weighted"

    def __init__(self, weights: Mapping[str, float], *, otherwise: float | None = None) -> None:
        """`otherwise` is the weight of members that `weights` does not name; without it such a member is an error."""
        for member, weight in {**weights, "otherwise": otherwise or 0.0}.items():
            if not isfinite(weight) or weight < 0:
                raise SettingsError(f"the weight of {member} is {weight}; a weight is a number from 0 on")
        if not any(weights.values()) and not otherwise:
            raise SettingsError("the weights add up to nothing; somebody must have a weight above 0")
        self._weights = dict(weights)
        self._otherwise = otherwise

    @classmethod
    def of_percent(cls, percent: Mapping[str, float]) -> "Weighted":
        """From shares that must add up to 100."""
        total = fsum(percent.values())
        if not isclose(total, 100, abs_tol=1e-6):
            raise SettingsError(f"the shares add up to {total:g} %; they must add up to 100 %")
        return cls(percent)

    def check(self, members: tuple[str, ...]) -> None:
        """Refuses weights that do not fit the group: call it when the setting is made."""
        strangers = sorted(set(self._weights).difference(members))
        if strangers:
            raise SettingsError(
                f"weights are given for {', '.join(strangers)}, not in the group of {', '.join(members)}"
            )
        self._weights_of(members)

    def check_view(self, view: View) -> None:
        """Refuses weights that cannot share this group. Members that are named and away are no reason: they may come back."""
        self._weights_of(view.members)

    def check_member(self, client_id: str | None) -> None:
        """Refuses weights in which a member that begins can have no place; None is an id made by chance."""
        if self._otherwise is None and client_id not in self._weights:
            who = "a member without a client_id of its own" if client_id is None else f"member {client_id}"
            raise SettingsError(
                f"weights: {who} has no weight; name it by its client_id, or give `otherwise`"
            )

    def plan(self, view: View) -> Plan:
        if view.me not in view.members or not view.queues:
            return outsider(view)
        weights = self._weights_of(view.members)
        quotas = weighted_quotas(view.group, view.members, len(view.queues), weights)
        if view.holders is None:
            return up_to(view, quotas[view.me])
        return nearly(view, settled(view, known_holdings(view), quotas)[view.me])

    def _weights_of(self, members: tuple[str, ...]) -> dict[str, float]:
        weights = {}
        for member in members:
            weight = self._weights.get(member, self._otherwise)
            if weight is None:
                raise AllocationError(
                    f"member {member} has no weight; name it or give a weight for all others"
                )
            weights[member] = weight
        if not any(weights.values()):
            raise AllocationError(f"all members have weight 0, nobody may hold a queue: {', '.join(members)}")
        return weights


def learned_weights(
    known: Mapping[str, float],
    handled_per_s: Mapping[str, float],
    *,
    smoothing: float = 0.2,
    band: float = 0.15,
) -> dict[str, float]:
    """Weights out of service rates (messages a member handles in a second in which it is busy), smoothed.

    A weight stays as it is while the measured rate is within the `band` around it: a little noise moves no queue. Beyond it the weight goes a part
    of the way, `smoothing`. A member not measured yet gets the mean of the measured ones.
    """
    measured = {member: rate for member, rate in handled_per_s.items() if rate > 0}
    mean = fsum(measured.values()) / len(measured) if measured else 1.0
    weights = {}
    for member in handled_per_s:
        old = known.get(member)
        rate = measured.get(member, mean)
        if old is None:
            weights[member] = rate
        else:
            new = old + smoothing * (rate - old)
            weights[member] = new if abs(rate - old) > band * old else old
    return weights
