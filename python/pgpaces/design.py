"""The design of an experiment: factors and their levels, cells, and the order of trials.

Pure: knows no clock, no files, no server. Levels are texts as people write them; what they mean
for a trial is in `levels.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import ClassVar

from msgspec import Struct, field

from pgpaces.costs import Costs
from pgpaces.errors import PlanError
from pgpaces.redaction import Redacted

Levels = Mapping[str, str]

# Beyond this many cells nobody would ever wait for the end.
CELLS_MAX = 1_000_000
KEY_LENGTH = 12
HERE = ""
# A level of cells whose trials are chosen as an experiment goes: what a trial is for. It changes
# nothing about the trial.
ROLE = "role"


class Factor(Struct, frozen=True):
    """What differs between cells. levels: in the order in which tables and charts show them.

    Raises PlanError for a factor without levels, or with one twice.
    """

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise PlanError(f"factor {self.name} has no levels", "give at least one")
        twice = {level for level in self.levels if self.levels.count(level) > 1}
        if twice:
            raise PlanError(
                f"factor {self.name} has level {sorted(twice)[0]} twice",
                "give each level once; `trials` says how often each cell is run",
            )


class Cell(Struct, frozen=True):
    """One combination of levels: pairs of factor and level."""

    levels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Twelve characters that depend on the levels alone, not on their order."""
        text = "\0".join(f"{name}\0{level}" for name, level in sorted(self.levels))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:KEY_LENGTH]

    def matches(self, part: Levels) -> bool:
        """Whether it has all these levels."""
        own = dict(self.levels)
        return all(own.get(name) == level for name, level in part.items())

    def __str__(self) -> str:
        """Its levels in a sentence."""
        return ", ".join(f"{name}={level}" for name, level in self.levels) or "the one cell"


class Slot(Struct, frozen=True):
    """A trial that is due: of a cell in a block, blocks from 1."""

    block: int
    cell: Cell


class Target(Redacted, frozen=True):
    """A machine with a server on it, by name.

    kind: machines of one kind are replicates of each other. costs: of the machine. alter_system:
    settings of the whole server may be changed (and are put back). restart: a shell command that
    restarts the server, for settings that need that. observe_command: one that prints what
    `pgpaces observe` does on its machine. nodes: DSNs of servers that belong to it, by name:
    standby1, standby2, ..., pool.
    """

    REDACTED: ClassVar = ("dsn", "nodes")
    name: str
    # Not in the repr: it may hold a password.
    dsn: str
    kind: str | None = None
    costs: Costs | None = None
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    # Not in the repr: a password may be in it.
    nodes: Mapping[str, str] = field(default_factory=dict)


class Design(Struct, frozen=True):
    """What an experiment varies, and how often.

    fixed: levels that all cells share. exclude: cells with all these levels are left out of the
    grid. extra: cells beside the grid; a factor that such a one does not name takes all of its
    levels. trials: how often each cell is run, once in each block.
    """

    factors: tuple[Factor, ...] = ()
    fixed: Levels = field(default_factory=dict)
    exclude: tuple[Levels, ...] = ()
    extra: tuple[Levels, ...] = ()
    trials: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Raises PlanError for what cannot be."""
        if not 1 <= self.trials <= 10_000:
            raise PlanError(f"{self.trials} trials of each cell cannot be", "from 1 to 10000")
        if not 0 <= self.seed < 2**63:
            raise PlanError(f"seed {self.seed} is out of range", "from 0 to 2^63 - 1")
        names = [factor.name for factor in self.factors]
        for name in names:
            if names.count(name) > 1 or name in self.fixed:
                raise PlanError(f"{name} is given twice", "as a factor or as one level for all")
        for part in self.exclude:
            for name, level in part.items():
                self._check_excluded(name, level)
        count = math.prod(len(factor.levels) for factor in self.factors)
        if count > CELLS_MAX:
            raise PlanError(f"the grid has {count} cells", f"at most {CELLS_MAX} can be")

    def _check_excluded(self, name: str, level: str) -> None:
        known = {factor.name: factor.levels for factor in self.factors}
        if name not in known:
            listed = f"factors are {', '.join(known)}" if known else "there are no factors"
            raise PlanError(f"exclude names {name}, which is no factor", listed)
        if level not in known[name]:
            raise PlanError(
                f"exclude names level {level} of {name}, which the grid does not have",
                f"its levels are {', '.join(known[name])}",
            )

    def cells(self) -> tuple[Cell, ...]:
        """The grid without what is excluded, then the explicit cells, each once.

        Raises PlanError where nothing is left.
        """
        grid = self._grid(self.factors) if self.factors or not self.extra else ()
        kept = [cell for cell in grid if not any(cell.matches(part) for part in self.exclude)]
        for part in self.extra:
            kept += self._extra(part)
        if not kept:
            raise PlanError("every cell is excluded", "leave out some of `exclude`")
        return tuple({cell.key: cell for cell in kept}.values())

    def _extra(self, part: Levels) -> Iterator[Cell]:
        others = [factor for factor in self.factors if factor.name not in part]
        here = [Factor(name, (level,)) for name, level in part.items()]
        order = {factor.name: place for place, factor in enumerate(self.factors)}
        here.sort(key=lambda factor: order.get(factor.name, len(order)))
        yield from self._grid((*others, *here))

    def _grid(self, factors: Iterable[Factor]) -> Iterator[Cell]:
        found = tuple(factors)
        names = [factor.name for factor in found]
        for levels in product(*(factor.levels for factor in found)):
            yield Cell(tuple(zip(names, levels, strict=True)))

    def slots(self) -> tuple[Slot, ...]:
        """Every trial in the order in which they run: whole blocks, shuffled by the seed.

        A cell's place in a block is that of a hash of seed, block and key, so it does not depend
        on the order in which levels were written, nor on which other cells there are.
        """
        cells = self.cells()
        return tuple(
            Slot(block, cell)
            for block in range(1, self.trials + 1)
            for cell in sorted(cells, key=lambda cell: place(self.seed, block, cell))
        )

    def load_seed(self, block: int) -> int:
        """The seed of the load in a block: all cells of a block meet the same arrivals."""
        return self.seed + block - 1


class Experiment(Redacted, frozen=True):
    """An experiment as it was asked for.

    workload: a shipped one's name, or a folder. files: scripts, FILE or FILE@WEIGHT, that run
    instead of the workload's. question: what it is to answer, for the page. missed_max: up to this
    share missed, a cell holds. profiles: settings of managed servers, by name. from_database: the
    database whose copy is measured, instead of the workload's own data.
    """

    REDACTED: ClassVar = ("from_database",)
    name: str
    workload: str | None
    design: Design
    question: str = ""
    missed_max: float = 0.05
    targets: tuple[Target, ...] = ()
    profiles: Mapping[str, Levels] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    # Not in the repr: it may hold a password.
    from_database: str | None = None


def place(seed: int, block: int, cell: Cell) -> bytes:
    """A cell's place in a block, to sort by."""
    return hashlib.sha256(f"{seed}/{block}/{cell.key}".encode()).digest()


def missing(slots: Iterable[Slot], done: Iterable[tuple[int, str]]) -> tuple[Slot, ...]:
    """The trials that are still to be run; done: block and cell key of those that were."""
    have = set(done)
    return tuple(slot for slot in slots if (slot.block, slot.cell.key) not in have)


def by_machine(slots: Iterable[Slot], machine_of: Mapping[str, str]) -> dict[str, list[Slot]]:
    """The trials of each machine, in their order. machine_of: the machine of each target level.

    Cells without a target are of the machine that pgpaces runs on.
    """
    found: dict[str, list[Slot]] = {}
    for slot in slots:
        target = dict(slot.cell.levels).get("target", HERE)
        found.setdefault(machine_of.get(target, HERE), []).append(slot)
    return found
