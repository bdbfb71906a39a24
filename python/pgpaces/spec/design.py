"""An experiment: its factors and their levels, cells, and the order of trials.

Pure: knows no clock, no files, no server. Levels are texts as typed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.errors import PlanError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.units import digits
from pgpaces.spec.options import check_name, replaced
from pgpaces.spec.target import Target

Levels = Mapping[str, str]
# How often each cell is run; "auto": until its verdict is certain.
Trials = int | Literal["auto"]

# An experiment with more cells would never end.
CELLS_MAX = 1_000_000
KEY_LENGTH = 12
HERE = ""
# A level of cells in adaptive experiments: the purpose of a trial. It does not change the trial.
ROLE = "role"


class Factor(Struct, frozen=True):
    """An option with several levels, in the order of tables and charts."""

    name: str
    levels: tuple[str, ...]


class Cell(Struct, frozen=True):
    """One combination of levels: pairs of factor and level."""

    levels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Twelve characters that depend on the levels alone, not on their order."""
        text = "\0".join(f"{name}\0{level}" for name, level in sorted(self.levels))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:KEY_LENGTH]

    def __str__(self) -> str:
        pairs = (f"{name}={level_text(level)}" for name, level in self.levels)
        return ", ".join(pairs) or "the one cell"


class Ask(Struct, frozen=True):
    """A trial that is due: of a cell in a block, blocks from 1.

    options: of this trial alone, not of its cell; None: without this option. why: in a few words,
    for the display of progress.
    """

    cell: Cell
    block: int
    options: Mapping[str, str | None] = field(default_factory=dict)
    why: str = ""
    attempt: int = 1


class Design(Struct, frozen=True, forbid_unknown_fields=True):
    """The levels of an experiment's options, and the number of its trials. Raises PlanError.

    levels: by name; an option with several levels is a factor. exclude: cells with all these levels
    are left out of the grid. extra: cells outside the grid; a factor that one does not name takes
    all of its levels. trials: of each cell, one in each block.
    """

    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[Levels, ...] = ()
    extra: tuple[Levels, ...] = ()
    trials: Trials = 1
    seed: int = 1

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(name, own) for name, own in self.levels.items() if len(own) > 1)

    @property
    def fixed(self) -> dict[str, str]:
        """The levels that all cells share."""
        return {name: own[0] for name, own in self.levels.items() if len(own) == 1}

    def __post_init__(self) -> None:
        if self.trials != "auto" and not 1 <= self.trials <= 10_000:
            limits = "from 1 to 10000"
            raise PlanError("out-of-range", what="trials", value=self.trials, range=limits)
        if not 0 <= self.seed < 2**63:
            limits = "from 0 to 2^63 - 1"
            raise PlanError("out-of-range", what="seed", value=self.seed, range=limits)
        for name, own in self.levels.items():
            if not own:
                raise PlanError("no-levels", factor=name)
            if twice := sorted(level for level in own if own.count(level) > 1):
                raise PlanError("level-twice", factor=name, level=twice[0])
        for name, level in (pair for part in self.exclude for pair in part.items()):
            if name not in self.levels:
                factors = [factor.name for factor in self.factors] or None
                raise PlanError("exclude-unknown-factor", factor=name, factors=factors)
            if level not in (own := self.levels[name]):
                raise PlanError("exclude-unknown-level", factor=name, level=level, levels=own)
        if (count := math.prod(map(len, self.levels.values()))) > CELLS_MAX:
            raise PlanError("too-many-cells", count=count, maximum=CELLS_MAX)

    def cells(self) -> tuple[Cell, ...]:
        """The grid without the excluded cells, then the extra cells, each once.

        Raises PlanError if no cell remains.
        """
        factors, shared = self.factors, self.fixed.items()
        grid = self._grid(factors) if factors or not self.extra else ()
        excluded = [part.items() - shared for part in self.exclude]
        cells = [cell for cell in grid if not any(part <= {*cell.levels} for part in excluded)]
        order = {factor.name: place for place, factor in enumerate(factors)}
        for part in self.extra:
            others = [factor for factor in factors if factor.name not in part]
            here = [Factor(name, (level,)) for name, level in part.items()]
            here.sort(key=lambda factor: order.get(factor.name, len(order)))
            cells += self._grid((*others, *here))
        if not cells:
            raise PlanError("all-cells-excluded")
        return tuple({cell.key: cell for cell in cells}.values())

    def _grid(self, factors: Iterable[Factor]) -> Iterator[Cell]:
        factors = tuple(factors)
        names = [factor.name for factor in factors]
        for levels in product(*(factor.levels for factor in factors)):
            yield Cell(tuple(zip(names, levels, strict=True)))

    def asks(self) -> tuple[Ask, ...]:
        """Every trial in the order in which they run: whole blocks, shuffled by the seed.

        A cell's place in a block is that of a hash of seed, block and key, so it does not depend
        on the order in which levels were written, nor on which other cells there are.
        """
        assert self.trials != "auto", "the trials of such a design follow from their results"
        cells = self.cells()
        return tuple(
            Ask(cell, block)
            for block in range(1, self.trials + 1)
            for cell in sorted(cells, key=lambda cell: place(self.seed, block, cell))
        )


def level_text(level: str) -> str:
    """A level as it is shown: an empty one, such as of a setting, in quotes."""
    return level or "''"


def place(seed: int, block: int, cell: Cell) -> bytes:
    return hashlib.sha256(f"{seed}/{block}/{cell.key}".encode()).digest()


def by_machine(asks: Iterable[Ask], machine_of: Mapping[str, str]) -> dict[str, list[Ask]]:
    """The trials of each machine, in their order. machine_of: the machine of each target level.

    Cells without a target run on the machine of pgpaces.
    """
    machines: dict[str, list[Ask]] = {}
    for ask in asks:
        target = dict(ask.cell.levels).get("target", HERE)
        machines.setdefault(machine_of.get(target, HERE), []).append(ask)
    return machines


def in_cell(error: PlanError, cell: Cell) -> PlanError:
    return error.at(f"cell {cell}") if cell.levels else error


# The levels of --quick if the file has no [quick].
QUICK: Mapping[str, str] = {"duration": "5s", "warmup": "1s"}


class Experiment(Redacted, frozen=True):
    """The specification of an experiment.

    workload: a shipped one's name, or a folder. files: scripts, FILE or FILE@WEIGHT, that run
    instead of the workload's. question: in a sentence, for the page. missed_max: a cell with at
    most this share missed passes. profiles: settings of managed servers, by name. quick: the levels
    of `--quick`, including `trials`.
    from_database: the database whose copy is measured, instead of the workload's own data.
    """

    REDACTED: ClassVar = ("from_database",)  # not in the repr: it may hold a password
    name: str = ""
    workload: str | None = None
    design: Design = field(default_factory=Design)
    question: str = ""
    missed_max: float = 0.05
    targets: tuple[Target, ...] = ()
    profiles: Mapping[str, Levels] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    from_database: str | None = None
    quick: Levels = field(default_factory=dict)

    def with_levels(self, new: Mapping[str, tuple[str, ...]]) -> Experiment:
        """With new levels of these names, without the parts of `exclude` that no longer apply.

        These are about replaced levels, or about levels that all cells share now. Raises PlanError
        for an unknown name.
        """
        for name in new:
            check_name(name)
        gone = replaced(new)
        kept = {name: own for name, own in self.design.levels.items() if name not in gone}
        return self._with({**kept, **new})

    def without(self, *names: str) -> Experiment:
        return self._with({n: own for n, own in self.design.levels.items() if n not in names})

    def _with(self, levels: Mapping[str, tuple[str, ...]]) -> Experiment:
        single = {name for name, own in levels.items() if len(own) == 1}
        left = tuple(
            part
            for part in self.design.exclude
            if all(level in levels.get(name, ()) for name, level in part.items())
            and not part.keys() <= single  # it would leave nothing of what was asked for
        )
        return replace(self, design=replace(self.design, levels=levels, exclude=left))

    def quickly(self) -> Experiment:
        """With short trials, each once or as `quick` says, to see that everything works."""
        quick = dict(self.quick or QUICK)
        trials = quick.pop("trials", None)
        short = self.with_levels({name: (level,) for name, level in quick.items()})
        if trials is None:
            return short
        if (number := digits(trials)) is None:
            raise PlanError("not-an-integer", what="quick.trials", value=trials, low=1, high=10_000)
        return replace(short, design=replace(short.design, trials=number))

    def checked(self, ready_made: Callable[[str], Levels | None] = lambda _: None) -> Experiment:
        """It with a name, and the settings of each profile. Raises PlanError if it is invalid.

        ready_made: the settings of a profile that the file does not define; None: no such profile.
        """
        profiles = dict(self.profiles)
        for name in self._named("profile"):
            if name not in ("default", *profiles) and (settings := ready_made(name)) is not None:
                profiles[name] = settings
        targets = {target.name for target in self.targets}
        for name, defined in {"target": targets, "profile": {"default", *profiles}}.items():
            for level in self._named(name):
                if level not in defined:
                    error = "undefined-target" if name == "target" else "undefined-profile"
                    raise PlanError(error, level=level, defined=sorted(defined) or None)
        if self.workload is None and not self.files:
            raise PlanError("no-workload")
        return replace(self, name=self.name or self.workload or "scripts", profiles=profiles)

    def _named(self, name: str) -> list[str]:
        extra = [part[name] for part in self.design.extra if name in part]
        return [*self.design.levels.get(name, ()), *extra]
