"""What may be wrong with a group of consumers. PURE: facts in, findings out.

Two questions are answered: why are some queues not consumed, and why do messages come twice. Each finding has its evidence and what
to do. Facts are taken twice, a moment apart: a queue that changes hands is held by two or by nobody for a short time, and only what
both looks show is said.
"""

from trimtab.client.admin import diagnosis_leases, diagnosis_members, diagnosis_queues
from trimtab.client.admin.diagnosis_facts import Facts, Finding, Look, Severity
from trimtab.client.admin.diagnosis_members import strategy_of

STUCK_MS = 60_000
_ORDER: dict[Severity, int] = {"broken": 0, "warning": 1, "note": 2}


def diagnose(facts: Facts, *, stuck_ms: int = STUCK_MS) -> tuple[Finding, ...]:
    """What is wrong, the worst first; nothing for a healthy group."""
    checks = (*diagnosis_members.CHECKS, *diagnosis_leases.CHECKS, *diagnosis_queues.CHECKS)
    found = [finding for check in checks for finding in check(facts)]
    found += diagnosis_queues.stuck(facts, stuck_ms)
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


__all__ = ["Facts", "Finding", "Look", "diagnose", "strategy_of"]
