"""The experiment of a new comparison, from its options."""

from __future__ import annotations

from msgspec.structs import replace

from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.analysis.pairing import Pairing
from pgpaces.core.errors import PlanError
from pgpaces.spec import levels
from pgpaces.spec.design import Experiment, Levels
from pgpaces.spec.draft import Draft


def ask(draft: Draft, names: tuple[str, str], goal: ComparisonGoal) -> tuple[Experiment, Pairing]:
    """The experiment of A and B, `FACTOR=LEVEL,...` each. Raises PlanError.

    Their levels replace those of the draft; every other option has one level.
    """
    from pgpaces.server import profiles

    a, b = (_levels(name) for name in names)
    if a.keys() != b.keys():
        odd = ", ".join(sorted(a.keys() ^ b.keys()))
        raise PlanError(
            f"A and B do not name the same factors: {odd}",
            "give each a level of every factor, such as set.work_mem=4MB and set.work_mem=64MB",
        )
    if a == b:
        raise PlanError(f"A and B are both {names[0]}", "name what differs")
    others = {name: texts for name, texts in draft.levels.items() if name not in a}
    for name, texts in others.items():
        if len(texts) > 1:
            raise PlanError(
                f"{name} has {len(texts)} levels, and A and B do not say which",
                f"give one, or name it in both: {name}={texts[0]}",
            )
    draft = replace(draft, levels=others, factors=frozenset(), exclude=(), extra=(a, b), trials=1)
    draft = replace(draft, seed=goal.seed)
    return draft.experiment(profiles.ready_made), Pairing(a, b, goal)


def _levels(name: str) -> Levels:
    pairs: dict[str, str] = {}
    for part in levels.split(name):
        factor, equals, level = part.partition("=")
        if not equals or not level.strip():
            raise PlanError(f"'{part}' is not FACTOR=LEVEL", "such as variant=log,clients=4")
        levels.check_name(factor.strip())
        pairs[factor.strip()] = level.strip()
    return pairs
