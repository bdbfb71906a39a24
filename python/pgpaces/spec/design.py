"""The design of an experiment: factors and their levels, cells, and the order of trials.

Pure: knows no clock, no files, no server. Levels are texts as typed; `levels.py` turns them into
values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import ClassVar

from msgspec import Struct, field

from pgpaces.core.errors import PlanError
from pgpaces.core.redaction import Redacted
from pgpaces.spec.costs import Costs

Levels = Mapping[str, str]

# An experiment with more cells would never end.
CELLS_MAX = 1_000_000
KEY_LENGTH = 12
HERE = ""
# A level of cells in adaptive experiments: the purpose of a trial. It does not change the trial.
ROLE = "role"


class Factor(Struct, frozen=True):
    """A variable of the experiment. levels: in the order of tables and charts.

    Raises PlanError for a factor without levels, or with a level twice.
    """

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise PlanError("no-levels", factor=self.name)
        twice = {level for level in self.levels if self.levels.count(level) > 1}
        if twice:
            raise PlanError("level-twice", factor=self.name, level=sorted(twice)[0])


class Cell(Struct, frozen=True):
    """One combination of levels: pairs of factor and level."""

    levels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Twelve characters that depend on the levels alone, not on their order."""
        text = "\0".join(f"{name}\0{level}" for name, level in sorted(self.levels))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:KEY_LENGTH]

    def matches(self, part: Levels) -> bool:
        own = dict(self.levels)
        return all(own.get(name) == level for name, level in part.items())

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


class Target(Redacted, frozen=True):
    """A machine with a server on it, by name.

    kind: machines of one kind are replicates of each other. costs: of the machine. alter_system:
    settings of the whole server may be changed (and are put back). restart: a shell command that
    restarts the server, for settings that need that. observe_command: one that prints the output of
    `pgpaces observe` on its machine. nodes: DSNs of servers that belong to it, by name: standby1,
    standby2, ..., pool.
    """

    REDACTED: ClassVar = ("dsn", "nodes")  # not in the repr: they may hold a password
    name: str
    dsn: str
    kind: str | None = None
    costs: Costs | None = None
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)


class Design(Struct, frozen=True):
    """The factors of an experiment, and the number of its trials. Raises PlanError if invalid.

    fixed: levels that all cells share. exclude: cells with all these levels are left out of the
    grid. extra: cells outside the grid; a factor that one does not name takes all of its levels.
    trials: of each cell, one in each block.
    """

    factors: tuple[Factor, ...] = ()
    fixed: Levels = field(default_factory=dict)
    exclude: tuple[Levels, ...] = ()
    extra: tuple[Levels, ...] = ()
    trials: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= 10_000:
            limits = "from 1 to 10000"
            raise PlanError("out-of-range", what="trials", value=self.trials, range=limits)
        if not 0 <= self.seed < 2**63:
            limits = "from 0 to 2^63 - 1"
            raise PlanError("out-of-range", what="seed", value=self.seed, range=limits)
        names = [factor.name for factor in self.factors]
        for name in names:
            if names.count(name) > 1 or name in self.fixed:
                raise PlanError("factor-twice", factor=name)
        levels = {factor.name: factor.levels for factor in self.factors}
        for name, level in (pair for part in self.exclude for pair in part.items()):
            if name not in levels:
                raise PlanError("exclude-unknown-factor", factor=name, factors=list(levels) or None)
            if level not in (own := levels[name]):
                raise PlanError("exclude-unknown-level", factor=name, level=level, levels=own)
        count = math.prod(map(len, levels.values()))
        if count > CELLS_MAX:
            raise PlanError("too-many-cells", count=count, maximum=CELLS_MAX)

    def cells(self) -> tuple[Cell, ...]:
        """The grid without the excluded cells, then the extra cells, each once.

        Raises PlanError if no cell remains.
        """
        grid = self._grid(self.factors) if self.factors or not self.extra else ()
        cells = [cell for cell in grid if not any(cell.matches(part) for part in self.exclude)]
        order = {factor.name: place for place, factor in enumerate(self.factors)}
        for part in self.extra:
            others = [factor for factor in self.factors if factor.name not in part]
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
        cells = self.cells()
        return tuple(
            Ask(cell, block)
            for block in range(1, self.trials + 1)
            for cell in sorted(cells, key=lambda cell: place(self.seed, block, cell))
        )


class Experiment(Redacted, frozen=True):
    """The specification of an experiment.

    workload: a shipped one's name, or a folder. files: scripts, FILE or FILE@WEIGHT, that run
    instead of the workload's. question: in a sentence, for the page. missed_max: a cell with at
    most this share missed passes. profiles: settings of managed servers, by name.
    from_database: the database whose copy is measured, instead of the workload's own data.
    """

    REDACTED: ClassVar = ("from_database",)  # not in the repr: it may hold a password
    name: str
    workload: str | None
    design: Design
    question: str = ""
    missed_max: float = 0.05
    targets: tuple[Target, ...] = ()
    profiles: Mapping[str, Levels] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    from_database: str | None = None


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
