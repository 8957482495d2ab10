"""The way out of damage: what can be read is kept, what cannot is named and given up.

`prospect` changes nothing and says what is wrong; `mend` sets unreadable states aside under other names and makes queues, index
and checkpoint anew from the log. Damaged bytes of the log stay in their file as a hole; only an unreadable end is cut off.
"""

from dataclasses import dataclass

from trimtab.broker.store.opening import tags_code_by_tag
from trimtab.broker.store.progress import StateFile, StateStatus
from trimtab.broker.store.recovery import TagsCodeOf
from trimtab.broker.store.scrub import Finding, doubtful_states, verify
from trimtab.broker.store.settings import StoreSettings
from trimtab.broker.store.store import Store
from trimtab.io.disk import Disk


@dataclass(frozen=True, slots=True)
class Prospect:
    """What mending a store would be about."""

    findings: list[Finding]
    lost_states: list[str]
    """States of which no generation can be read."""

    @property
    def is_damaged(self) -> bool:
        return not all(finding.harmless for finding in self.findings)


def prospect(disk: Disk, *, tags_code_of: TagsCodeOf = tags_code_by_tag) -> Prospect:
    """Looks at every byte of a store that is not in use."""
    findings = verify(disk, tags_code_of=tags_code_of)
    doubtful = doubtful_states(disk)
    return Prospect(
        findings, [name for name, state in doubtful.items() if state.status is StateStatus.DAMAGED]
    )


def mend(disk: Disk, *, tags_code_of: TagsCodeOf = tags_code_by_tag) -> list[str]:
    """Makes a store that can be opened out of one that is not in use; gives what was done, in sentences."""
    # States last: should this end in between, the store still refuses to start without them.
    store = Store.open(disk, StoreSettings(), tags_code_of=tags_code_of, rebuild=True)
    report = list(store.report)
    store.close()
    disk.lock()
    try:
        for name, state in doubtful_states(disk).items():
            if state.status is StateStatus.DAMAGED:
                renamed = StateFile(disk, name).set_aside()
                report.append(f"{name} cannot be read and is set aside as {' and '.join(renamed)}")
    finally:
        disk.unlock()
    return report
