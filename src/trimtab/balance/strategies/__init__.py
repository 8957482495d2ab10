"""How the queues of a group are shared among its members.

A `Strategy` is stateless, as Java's are: from the view to my share. A `Planner` is for groups with leases: from the view and what I hold
to what I keep, give up and try to get.
"""

from trimtab.balance.strategies.across import across_topics
from trimtab.balance.strategies.averagely import Averagely
from trimtab.balance.strategies.base import Strategy
from trimtab.balance.strategies.by_config import ByConfig
from trimtab.balance.strategies.canary import Canary, CanarySetting, LeasedCanary
from trimtab.balance.strategies.circle import ByCircle
from trimtab.balance.strategies.consistent_hash import ConsistentHash
from trimtab.balance.strategies.lag import Lag
from trimtab.balance.strategies.machine_room import ByMachineRoom
from trimtab.balance.strategies.machine_room_nearby import MachineRoomNearby, Rooms
from trimtab.balance.strategies.named import by_name, planner_by_name
from trimtab.balance.strategies.plans import Load, Plan, Planned, Planner, View
from trimtab.balance.strategies.rendezvous import Rendezvous
from trimtab.balance.strategies.sticky import Sticky
from trimtab.balance.strategies.weighted import Weighted, learned_weights

__all__ = [
    "Averagely",
    "ByCircle",
    "ByConfig",
    "ByMachineRoom",
    "Canary",
    "CanarySetting",
    "ConsistentHash",
    "Lag",
    "LeasedCanary",
    "Load",
    "MachineRoomNearby",
    "Plan",
    "Planned",
    "Planner",
    "Rendezvous",
    "Rooms",
    "Sticky",
    "Strategy",
    "View",
    "Weighted",
    "across_topics",
    "by_name",
    "learned_weights",
    "planner_by_name",
]
