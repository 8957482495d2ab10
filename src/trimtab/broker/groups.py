"""The consumer groups that a broker knows by configuration, connected or not."""

from collections.abc import Iterator

from trimtab.broker import names
from trimtab.broker.requests import Refused
from trimtab.broker.settings import BrokerSettings
from trimtab.model import Now
from trimtab.wire.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from trimtab.wire.codes import ResponseCode


class GroupTable:
    """All group configurations by name."""

    def __init__(self, settings: BrokerSettings, saved: SubscriptionGroupWrapper | None, now: Now) -> None:
        self._settings = settings
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self.version = DataVersion(timestamp=now.wall_ms)
        if saved is not None:
            self._groups.update(saved.subscription_group_table)
            self.version = saved.data_version
        for group in names.SYSTEM_GROUPS:
            self._groups.setdefault(group, SubscriptionGroupConfig(group_name=group))

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, if it exists."""
        return self._groups.get(group)

    def snapshot(self) -> SubscriptionGroupWrapper:
        """All of it, as it is saved and shown."""
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self._groups), data_version=self.version
        )

    def settings_changed(self, settings: BrokerSettings) -> None:
        """Takes other settings."""
        self._settings = settings

    def find_or_create(self, group: str, now: Now) -> tuple[SubscriptionGroupConfig | None, bool]:
        """The group, made if that is allowed, and whether it is new."""
        known = self._groups.get(group)
        if known is not None:
            return known, False
        if not (self._settings.auto_create_groups or group.startswith(names.SYSTEM_GROUP_PREFIX)):
            return None, False
        created = SubscriptionGroupConfig(group_name=group)
        self.put(created, now)
        return created, True

    def put(self, group: SubscriptionGroupConfig, now: Now) -> bool:
        """Creates or alters a group; False if it is there already and just so."""
        complaint = names.group_complaint(group.group_name)
        if complaint is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, complaint)
        known = self._groups.get(group.group_name)
        if known == group:
            return False
        if known is None and len(self._groups) >= self._settings.groups_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"group {group.group_name} not created: this broker holds {len(self._groups)} groups, its limit",
            )
        self._groups[group.group_name] = group
        self.version = self.version.next(now.wall_ms)
        return True

    def remove(self, group: str, now: Now) -> bool:
        """Forgets a group."""
        if self._groups.pop(group, None) is None:
            return False
        self.version = self.version.next(now.wall_ms)
        return True
