"""The experiment of a new comparison, from its options."""

from __future__ import annotations

from msgspec.structs import replace

from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.analysis.sequential import Pairing
from pgpaces.core.errors import PlanError
from pgpaces.spec import options, spec
from pgpaces.spec.design import Design, Experiment, Levels


def experiment_of_pairs(
    base: Experiment, names: tuple[str, str], goal: ComparisonGoal
) -> tuple[Experiment, Pairing]:
    """The experiment of A and B, `FACTOR=LEVEL,...` each. Raises PlanError.

    Their levels replace those of the base; every other option has one level.
    """
    from pgpaces.server import profiles

    sides = []
    for text in names:
        sides.append(levels_in(text))
        for name, level in sides[-1].items():
            if not level:
                raise PlanError("not-factor-level", text=f"{name}=")
            options.check_name(name)
    a, b = sides
    if a.keys() != b.keys():
        raise PlanError("different-factors", factors=sorted(a.keys() ^ b.keys()))
    if a == b:
        raise PlanError("same-levels", levels=names[0])
    others = {name: texts for name, texts in base.design.levels.items() if name not in a}
    for name, texts in others.items():
        if len(texts) > 1:
            raise PlanError("level-not-chosen", factor=name, count=len(texts), level=texts[0])
    base = replace(base, design=Design(others, extra=(a, b), seed=goal.seed))
    return base.checked(profiles.ready_made), Pairing(a, b, goal)


def levels_in(text: str) -> Levels:
    """The levels in `FACTOR=LEVEL,...`, by factor. Raises PlanError."""
    found: dict[str, str] = {}
    for part in spec.split(text):
        name, equals, level = part.partition("=")
        if not equals:
            raise PlanError("not-factor-level", text=part)
        found[name.strip()] = level.strip()
    return found
