"""The promises, checked against a history; see `sim_safety`, `sim_liveness` and `sim_starts` for the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation import sim_liveness, sim_safety, sim_starts
from simulation.sim_case import Case, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from simulation.fleet import Settings
    from simulation.sim_bodies import JobPlan
    from simulation.sim_history import History

__all__ = ["RULES", "Violation", "check"]

RULES = (*sim_safety.RULES, *sim_liveness.RULES, *sim_starts.RULES)
"""All promises."""


class Violation(AssertionError):
    """A promise was broken; the text has seed, profile, rule and the last seconds."""

    def __init__(self, seed: int, profile: str, rule: str, text: str, timeline: str) -> None:
        super().__init__(f"seed {seed}, profile {profile!r}, rule {rule}: {text}\n{timeline}")
        self.seed = seed
        self.profile = profile
        self.rule = rule


def check(
    history: History,
    settings: Settings,
    plans: Mapping[str, JobPlan],
    rules: Iterable[Callable[[Case], Iterator[Found]]] = RULES,
) -> Found | None:
    """The first promise that was broken, in time; None: all were kept."""
    case = Case(history, settings, plans)
    found = [one for rule in rules for one in rule(case)]
    found += [Found(history.ended_at, "errors", text) for text in history.errors]
    return min(found, default=None)
