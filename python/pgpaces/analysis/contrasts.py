"""The effect of a level against another one: the mean ratio over pairs of trials. Pure.

A pair is two trials of one block that differ in one factor alone. They ran near each other in time,
and under the same arrivals, so most noise of the machine cancels out (Abedi and Brecht, "Conducting
Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017). These are
intervals, not verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, board, of_kind
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.distributions import student_quantile
from pgpaces.spec.design import Cell, Factor
from pgpaces.spec.result import Estimate

_TAIL = 0.025
# With more rows than this, the pairs at all levels of other factors are taken together.
_ROWS_MAX = 24

Levels = tuple[tuple[str, str], ...]
# A factor, its level, and the levels of the other factors.
Key = tuple[str, str, Levels]
Pairs = dict[Key, list[tuple[Digest, Digest]]]


class Ratio(Struct, frozen=True):
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


def ratio(logs: Sequence[float]) -> Estimate | None:
    """exp of the mean of logarithms, with Student's t of k - 1 degrees of freedom."""
    k = len(logs)
    if k == 0:
        return None
    middle = fmean(logs)
    if k == 1:
        return Estimate.alone(math.exp(middle), 1)
    half = student_quantile(k - 1, 1 - _TAIL) * stdev(logs) / math.sqrt(k)
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(min(middle + half, 700)), k)


def compared(
    rows: Iterable[Row], factors: Sequence[Factor], kinds: Mapping[str, str] | None = None
) -> tuple[Ratio, ...]:
    """Every level against the first of its factor, for factors with names or two levels.

    Factors with many numbers have charts instead. Trials that do not count are in no pair.
    """
    trials = _trials(rows, kinds or {})
    every: Pairs = {}
    for factor in factors:
        is_scale = crossing.numeric(factor) and factor.name not in crossing.NAMES
        if (is_scale and len(factor.levels) > 2) or factor.name in crossing.LOADS:
            continue
        base, *others = factor.levels
        for (levels, place), digest in trials.items():
            own = dict(levels)
            if own.get(factor.name) not in others:
                continue
            at_base = tuple((n, base if n == factor.name else old) for n, old in levels)
            other = trials.get((at_base, place))
            if other is not None:
                rest = tuple(pair for pair in levels if pair[0] != factor.name)
                every.setdefault((factor.name, own[factor.name], rest), []).append((other, digest))
    if len(every) > _ROWS_MAX:
        merged: Pairs = {}
        for (name, level, _), pairs in every.items():
            merged.setdefault((name, level, ()), []).extend(pairs)
        every = merged
    bases = {factor.name: factor.levels[0] for factor in factors}
    return tuple(_ratio(bases[key[0]], key, pairs) for key, pairs in every.items())


def _trials(
    rows: Iterable[Row], kinds: Mapping[str, str]
) -> dict[tuple[Levels, tuple[str, int]], Digest]:
    """Each trial that counts, by its levels, its machine and its block."""
    trials = {}
    for row in rows:
        if not row.sound:
            continue
        names = {name for name, _ in row.cell.levels}
        for digest in row.trials:
            if (place := digest.trial.place) is None:
                continue
            cell = of_kind(Cell(tuple(place.levels.items())), kinds)
            levels = tuple(sorted(pair for pair in cell.levels if pair[0] in names))
            # A machine that is a level is compared, so it is no replicate.
            machine = board(digest) if board(digest) in kinds else ""
            trials[levels, (machine, place.block)] = digest
    return trials


def _ratio(base: str, key: Key, pairs: Sequence[tuple[Digest, Digest]]) -> Ratio:
    factor, level, at = key
    rates = [(a.summary.throughput, b.summary.throughput) for a, b in pairs]
    means = [(a.summary.latency.mean, b.summary.latency.mean) for a, b in pairs]
    return Ratio(factor, base, level, at, ratio(_logs(rates)), ratio(_logs(means)))


def _logs(pairs: Iterable[tuple[Estimate | None, Estimate | None]]) -> list[float]:
    return [
        math.log(b.value / a.value)
        for a, b in pairs
        if a is not None and b is not None and a.value > 0 and b.value > 0
    ]
