"""Levels, and machines of one kind, against each other: ratios over pairs of trials. Pure.

The trials of a pair are of one block and differ in one factor alone. They ran near each other in
time, and under the same arrivals, so most noise of the machine cancels out (Abedi and Brecht,
"Conducting Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, board, of_kind, sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.effect import ALPHA, effect_of_pairs, mean_ratio
from pgpaces.spec.design import Cell, Factor
from pgpaces.spec.result import Estimate

# With more rows than this, the pairs at all levels of other factors are taken together.
_ROWS_MAX = 24
# A machine differs from its kind by more than this.
_MARGIN = math.log(1.05)
_PAIRS_MIN = 3

Levels = tuple[tuple[str, str], ...]
Logs = Mapping[str, float]


class LevelRatio(Struct, frozen=True):
    """A level of a factor against another one, where all else is the same.

    at: the levels of the other factors; empty for all of them together. throughput, mean: the mean
    ratio of the throughput, and of the mean latency, over n pairs; None without values. One
    pair has no interval.
    """

    factor: str
    base: str
    level: str
    at: Levels
    throughput: Estimate | None
    mean: Estimate | None


class MachineRatio(Struct, frozen=True):
    """A machine against the others of its kind.

    ratio: its mean service time over theirs, with the interval of Student's t over pairs (n).
    apart: it differs by more than 5%; at most 5% of experiments name a machine too many. With two
    machines, either may be the odd one: both are apart from each other.
    """

    name: str
    kind: str
    ratio: Estimate
    apart: bool


def level_ratios(
    rows: Iterable[Row], factors: Sequence[Factor], kinds: Mapping[str, str] | None = None
) -> tuple[LevelRatio, ...]:
    """Every level against the first of its factor, for factors with names or two levels.

    Factors with many numbers have charts instead. Trials that do not count are in no pair.
    """
    trials = _by_levels(rows, kinds or {})
    # By the factor, its level, and the levels of the other factors.
    every: dict[tuple[str, str, Levels], list[tuple[Digest, Digest]]] = {}
    for factor in factors:
        is_scale = crossing.numeric(factor) and factor.name not in crossing.NAMES
        if (is_scale and len(factor.levels) > 2) or factor.name in crossing.LOADS:
            continue
        base, *others = factor.levels
        for (levels, place), digest in trials.items():
            level = dict(levels).get(factor.name)
            at_base = tuple((n, base if n == factor.name else old) for n, old in levels)
            other = trials.get((at_base, place))
            if level in others and other is not None:
                rest = tuple(pair for pair in levels if pair[0] != factor.name)
                every.setdefault((factor.name, level, rest), []).append((other, digest))
    if len(every) > _ROWS_MAX:
        single, every = every, {}
        for (name, level, _), pairs in single.items():
            every.setdefault((name, level, ()), []).extend(pairs)
    bases = {factor.name: factor.levels[0] for factor in factors}
    return tuple(
        LevelRatio(
            name,
            bases[name],
            level,
            at,
            _ratio((a.summary.throughput, b.summary.throughput) for a, b in pairs),
            _ratio((a.summary.latency.mean, b.summary.latency.mean) for a, b in pairs),
        )
        for (name, level, at), pairs in every.items()
    )


def _by_levels(
    rows: Iterable[Row], kinds: Mapping[str, str]
) -> dict[tuple[Levels, tuple[str, int]], Digest]:
    """Each trial that counts, by its levels, its machine and its block."""
    trials = {}
    for row in rows:
        names = {name for name, _ in row.cell.levels}
        for digest in row.trials if row.sound else ():
            if (place := digest.trial.place) is None:
                continue
            cell = of_kind(Cell(tuple(place.levels.items())), kinds)
            levels = tuple(sorted(pair for pair in cell.levels if pair[0] in names))
            # A machine that is a level is compared, so it is no replicate.
            machine = board(digest) if board(digest) in kinds else ""
            trials[levels, (machine, place.block)] = digest
    return trials


def _ratio(pairs: Iterable[tuple[Estimate | None, Estimate | None]]) -> Estimate | None:
    return mean_ratio(
        [
            math.log(b.value / a.value)
            for a, b in pairs
            if a is not None and b is not None and a.value > 0 and b.value > 0
        ]
    )


def machine_ratios(digests: Iterable[Digest], kinds: Mapping[str, str]) -> tuple[MachineRatio, ...]:
    """Each machine of a kind that has several, if there are three pairs of it.

    A pair: the logarithm of a machine's mean service time in a cell and block, less the mean of
    those of the others of its kind in the same cell and block. Student's two-sided test of
    |log ratio| <= log 1.05 over the pairs, at 5% over the number of remaining machines of all
    kinds (Holm 1979). Of the machines that it rejects the one that differs most is apart; then the
    test is repeated without it, so that a slow machine does not make the good ones look fast
    (swamping: Rosner, Technometrics 25, 1983).
    """
    groups: dict[tuple[str, str, int], dict[str, float]] = {}
    for digest in digests:
        place, mean = digest.trial.place, digest.summary.service.mean
        kind = kinds.get(board(digest))
        if place and kind is not None and sound(digest) and mean and mean.value > 0:
            rest = tuple(pair for pair in place.levels.items() if pair[0] != "target")
            group = groups.setdefault((kind, Cell(rest).key, place.block), {})
            group[board(digest)] = math.log(mean.value)
    by_kind: dict[str, list[Logs]] = {}
    for (kind, _, _), logs in groups.items():
        by_kind.setdefault(kind, []).append(logs)
    tests = sum(len(set().union(*groups)) for groups in by_kind.values())
    return tuple(
        each for kind, logs in by_kind.items() for each in machines_of_kind(kind, logs, tests)
    )


def machines_of_kind(kind: str, groups: Sequence[Logs], tests: int) -> Iterator[MachineRatio]:
    """The machines of a kind, those that are apart first. tests: machines of all kinds."""
    rest = list(dict.fromkeys(name for logs in groups for name in logs))
    while True:
        effects = {}
        for name in rest:
            differences = [
                logs[name] - fmean(others)
                for logs in groups
                if name in logs and (others := [logs[n] for n in rest if n in logs and n != name])
            ]
            effect = effect_of_pairs(differences)
            if effect is not None and effect.n >= _PAIRS_MIN:
                effects[name] = effect
        apart = [name for name, each in effects.items() if each.p(_MARGIN) < ALPHA / tests]
        if not apart or len(rest) < 3:
            for name, effect in effects.items():
                yield MachineRatio(name, kind, effect.ratio(), bool(apart))
            return
        first = max(apart, key=lambda name: abs(effects[name].value))
        yield MachineRatio(first, kind, effects[first].ratio(), True)
        rest.remove(first)
        tests -= 1
