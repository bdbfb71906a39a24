"""A draft of an experiment: from a file, from the command line, or from both.

A draft holds levels by name, one or several; a name with several, or under `[factors]`, becomes a
factor. Later levels replace earlier ones. Knows no files and no server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pgpaces.core.errors import PlanError
from pgpaces.core.units import digits
from pgpaces.spec import levels
from pgpaces.spec.design import Design, Experiment, Factor, Levels, Target
from pgpaces.spec.options import replaced

# Fields that a draft and its experiment have in common.
_OF_EXPERIMENT = frozenset(Experiment.__struct_fields__)
# The levels of --quick if the file has no [quick].
QUICK: Mapping[str, str] = {"duration": "5s", "warmup": "1s"}


class Draft(Struct, frozen=True):
    """An unchecked experiment; see design.Experiment.

    levels: by name, in the order of the tables in reports. factors: names that are factors even
    with one level. quick: the levels of `quick`, including `trials`.
    """

    name: str = ""
    workload: str | None = None
    question: str = ""
    missed_max: float = 0.05
    trials: int = 1
    seed: int = 1
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    factors: frozenset[str] = frozenset()
    exclude: tuple[Levels, ...] = ()
    extra: tuple[Levels, ...] = ()
    targets: tuple[Target, ...] = ()
    profiles: Mapping[str, Levels] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    from_database: str | None = None
    quick: Levels = field(default_factory=dict)

    def with_levels(self, new: Mapping[str, tuple[str, ...]]) -> Draft:
        """With new levels of these names; removes the parts of `exclude` about replaced levels.

        Raises PlanError for an unknown name.
        """
        for name in new:
            levels.check_name(name)
        removed = replaced(new)
        merged = {name: own for name, own in self.levels.items() if name not in removed}
        merged |= new
        varied = {name for name, own in merged.items() if len(own) > 1}
        # What is left of the exclusions after levels were replaced.
        narrowed = []
        for part in self.exclude:
            if any(level not in new.get(name, (level,)) for name, level in part.items()):
                continue
            rest = {n: level for n, level in part.items() if len(new.get(n, ("", ""))) > 1}
            if rest:
                narrowed.append(rest)
        return replace(
            self,
            levels=merged,
            factors=frozenset(name for name in self.factors - removed if name not in new) | varied,
            exclude=tuple(narrowed),
        )

    def without(self, *names: str) -> Draft:
        left = {name: own for name, own in self.levels.items() if name not in names}
        return replace(self, levels=left, factors=self.factors - set(names))

    def quickly(self) -> Draft:
        """With short trials, each once or as `quick` says, to see that everything works."""
        quick = dict(self.quick or QUICK)
        trials = quick.pop("trials", None)
        draft = self.with_levels({name: (level,) for name, level in quick.items()})
        if trials is None:
            return draft
        if (number := digits(trials)) is None:
            raise PlanError("not-an-integer", what="quick.trials", value=trials, low=1, high=10_000)
        return replace(draft, trials=number)

    def experiment(self, ready_made: Callable[[str], Levels | None] = lambda _: None) -> Experiment:
        """The experiment, with the settings of each profile. Raises PlanError if it is invalid.

        ready_made: the settings of a profile that the file does not define; None: no such profile.
        """
        profiles = dict(self.profiles)
        for name in self._named("profile"):
            if name not in ("default", *profiles) and (settings := ready_made(name)) is not None:
                profiles[name] = settings
        several = [n for n, own in self.levels.items() if len(own) > 1 or n in self.factors]
        definitions = {
            "target": {target.name for target in self.targets},
            "profile": {"default", *profiles},
        }
        for name, defined in definitions.items():
            for level in self._named(name):
                if level not in defined:
                    raise PlanError(
                        "undefined-target" if name == "target" else "undefined-profile",
                        level=level,
                        defined=sorted(defined) or None,
                    )
        design = Design(
            factors=tuple(Factor(name, self.levels[name]) for name in several),
            fixed={n: own[0] for n, own in self.levels.items() if n not in several},
            exclude=self.exclude,
            extra=self.extra,
            trials=self.trials,
            seed=self.seed,
        )
        if self.workload is None and not self.files:
            raise PlanError("no-workload")
        own = {name: value for name, value in asdict(self).items() if name in _OF_EXPERIMENT}
        own |= {"name": self.name or self.workload or "scripts", "profiles": profiles}
        return Experiment(design=design, **own)

    def _named(self, name: str) -> list[str]:
        extra = [part[name] for part in self.extra if name in part]
        return [*self.levels.get(name, ()), *extra]


def of(experiment: Experiment) -> Draft:
    """The draft of an experiment, to change it and run it again."""
    design = experiment.design
    several = {factor.name: factor.levels for factor in design.factors}
    own = {name: getattr(experiment, name) for name in _OF_EXPERIMENT & {*Draft.__struct_fields__}}
    return Draft(
        levels={**several, **{name: (level,) for name, level in design.fixed.items()}},
        factors=frozenset(several),
        exclude=design.exclude,
        extra=design.extra,
        trials=design.trials,
        seed=design.seed,
        **own,
    )


def share(text: str, what: str) -> float:
    """0.05 of `5%` or `0.05`. Raises PlanError outside 0 to 1."""
    digits, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        percentage = f"{digits}%" if not percent and 1 <= value < 100 else "5%"
        raise PlanError("not-a-share", what=what, value=text, example=percentage)
    return value


def goal_share(text: str, what: str) -> float:
    """The share that may miss. Raises PlanError outside 0 to 1, and for 0."""
    value = share(text, what)
    if not value:
        raise PlanError("zero-share", what=what, value=text)
    return value
