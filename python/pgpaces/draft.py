"""An experiment being put together: from a file, from the command line, or from both.

A draft holds levels by name, whether one or many; what has several, or stands under `[factors]`,
becomes a factor. Later words replace earlier ones. Knows no files and no server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import levels
from pgpaces.design import Design, Experiment, Factor, Levels, Target
from pgpaces.errors import PlanError
from pgpaces.options import alone

# What --quick does where the file has no [quick].
QUICK: Mapping[str, str] = {"duration": "5s", "warmup": "1s"}


class Draft(Struct, frozen=True):
    """What is known of an experiment so far; see design.Experiment.

    levels: by name, in the order of the tables to come. factors: names that vary even where they
    have one level. quick: what `quick` changes, `trials` among it. time_budget: of each machine, in
    which trials are chosen, instead of `trials`.
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
    time_budget: str | None = None

    def with_time_budget(self, time_budget: str) -> Draft:
        """With a budget of time, in which trials are as long and as many as it has room for."""
        kept = {name: found for name, found in self.levels.items() if name not in alone("length")}
        factors = self.factors - set(alone("length"))
        return replace(self, time_budget=time_budget, trials=1, levels=kept, factors=factors)

    def with_levels(self, given: Mapping[str, tuple[str, ...]]) -> Draft:
        """With other levels of these names; what `exclude` says of levels that are gone is gone.

        Raises PlanError for a name that cannot be.
        """
        for name in given:
            levels.check_name(name)
        gone = _replaced(given)
        kept = {name: found for name, found in self.levels.items() if name not in gone}
        merged = {**kept, **given}
        varied = {name for name, found in merged.items() if len(found) > 1}
        return replace(
            self,
            levels=merged,
            factors=frozenset(name for name in self.factors - gone if name not in given) | varied,
            exclude=tuple(_narrowed(self.exclude, given)),
        )

    def quickly(self) -> Draft:
        """Short trials, each once or as often as `quick` says, to see that everything works."""
        quick = dict(self.quick or QUICK)
        trials = quick.pop("trials", None)
        found = self.with_levels({name: (level,) for name, level in quick.items()})
        found = replace(found, time_budget=None)
        if trials is None:
            return found
        if not trials.isdigit():
            raise PlanError(f"quick.trials is '{trials}'", "a whole number")
        return replace(found, trials=int(trials))

    def experiment(self, ready_made: Callable[[str], Levels | None] = lambda _: None) -> Experiment:
        """The experiment, with the settings of each profile. Raises PlanError for what cannot be.

        ready_made: the settings of a profile that the file does not define; None: no such one.
        """
        profiles = dict(self.profiles)
        for name in self._named("profile"):
            if name not in ("default", *profiles) and (settings := ready_made(name)) is not None:
                profiles[name] = settings
        return replace(self, profiles=profiles)._experiment()

    def _experiment(self) -> Experiment:
        several = [n for n, found in self.levels.items() if len(found) > 1 or n in self.factors]
        self._check_names()
        design = Design(
            factors=tuple(Factor(name, self.levels[name]) for name in several),
            fixed={n: found[0] for n, found in self.levels.items() if n not in several},
            exclude=self.exclude,
            extra=self.extra,
            trials=self.trials,
            seed=self.seed,
        )
        if self.workload is None and not self.files:
            raise PlanError(
                "the experiment names no workload", "add `workload`, or scripts: `files`"
            )
        return Experiment(
            name=self.name or self.workload or "scripts",
            workload=self.workload,
            design=design,
            question=self.question,
            missed_max=self.missed_max,
            targets=self.targets,
            profiles=self.profiles,
            files=self.files,
            from_database=self.from_database,
        )

    def _named(self, name: str) -> list[str]:
        """Every level of this name."""
        extra = [part[name] for part in self.extra if name in part]
        return [*self.levels.get(name, ()), *extra]

    def _check_names(self) -> None:
        """Raises PlanError for targets and profiles that nothing defines."""
        known = {
            "target": {target.name for target in self.targets},
            "profile": {"default", *self.profiles},
        }
        for name, defined in known.items():
            for level in self._named(name):
                if level not in defined:
                    raise PlanError(
                        f"{name} '{level}' is not defined",
                        f"define it under [{name}s.{level}]; there are"
                        f" {', '.join(sorted(defined)) or 'none'}"
                        + ("; `pgpaces server profiles` lists others" * (name == "profile")),
                    )


def _replaced(given: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Names that these exclude: another kind of load, another end."""
    gone: set[str] = set()
    for group in (alone("load"), alone("length")):
        if any(name in given for name in group):
            gone |= {name for name in group if name not in given}
    if "users" in given:
        gone.add("clients")
    if "clients" in given:
        gone |= {"users", "pace"}
    if any(name in given for name in ("rate", "rate_per_client", "think_time")):
        gone.add("pace")
    return frozenset(gone)


def _narrowed(
    exclude: tuple[Levels, ...], given: Mapping[str, tuple[str, ...]]
) -> list[dict[str, str]]:
    """What is left of the exclusions when these levels were replaced."""
    kept = []
    for part in exclude:
        if any(level not in given.get(name, (level,)) for name, level in part.items()):
            continue
        rest = {n: level for n, level in part.items() if len(given.get(n, ("", ""))) > 1}
        if rest:
            kept.append(rest)
    return kept


def share(text: str, what: str) -> float:
    """0.05 of `5%` or `0.05`. Raises PlanError outside 0 to 1."""
    digits, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise PlanError(f"{what} '{text}' is no share", "write a percentage below 100%, such as 5%")
    return value
