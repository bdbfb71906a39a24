"""Machines of one kind: does one of them stand apart from the others? Digests in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from pgpaces.answers.cells import board, sound
from pgpaces.answers.digest import Digest
from pgpaces.design import Cell
from pgpaces.result import Estimate

_TAIL = 0.05
_MARGIN = math.log(1.05)
_PAIRS_MIN = 3


@dataclass(frozen=True, slots=True)
class Apart:
    """A machine against the others of its kind.

    ratio: its mean service time over theirs, with the interval of Student's t over pairs (n).
    apart: even after Holm's correction the interval lies beyond 5 % either way.
    """

    name: str
    kind: str
    ratio: Estimate
    apart: bool


Groups = Mapping[tuple[str, str, int], Mapping[str, float]]


def compare(digests: Iterable[Digest], kinds: Mapping[str, str]) -> tuple[Apart, ...]:
    """Each machine of a kind that has several, as far as there are three pairs of it.

    A pair: the logarithm of a machine's mean service time in a cell and block, over the mean of
    those of the others of its kind in the same cell and block. Two-sided test of |log ratio| <=
    log 1.05, Holm's over all machines at 5 %. The machine that differs most is taken away before
    the others are looked at again: else one that is slow would make all others fast.
    """
    groups: dict[tuple[str, str, int], dict[str, float]] = {}
    for digest in digests:
        place, mean = digest.trial.place, digest.summary.service.mean
        kind = kinds.get(board(digest))
        if place and kind is not None and sound(digest) and mean and mean.value > 0:
            rest = tuple(pair for pair in place.levels.items() if pair[0] != "target")
            group = groups.setdefault((kind, Cell(rest).key, place.block), {})
            group[board(digest)] = math.log(mean.value)
    found: list[Apart] = []
    tested = _tested(groups)
    left = len(tested)
    while far := [key for key, (p, _) in tested.items() if p < _TAIL / left]:
        most = max(_distance(tested[key][1]) for key in far)
        # Of two that are left each is as far from the other.
        gone = [key for key in far if math.isclose(_distance(tested[key][1]), most)]
        found += [Apart(*key, tested[key][1], True) for key in gone]
        left = max(1, left - len(gone))
        names = set(gone)
        groups = {
            at: {name: log for name, log in group.items() if (name, at[0]) not in names}
            for at, group in groups.items()
        }
        tested = _tested(groups)
    return (*found, *(Apart(*key, ratio, False) for key, (_, ratio) in tested.items()))


def _distance(ratio: Estimate) -> float:
    return abs(math.log(ratio.value))


def _tested(groups: Groups) -> dict[tuple[str, str], tuple[float, Estimate]]:
    """The p-value of each machine against the others of its kind, and how far it is."""
    from scipy.special import stdtr, stdtrit

    errors: dict[tuple[str, str], list[float]] = {}
    for (kind, _, _), logs in groups.items():
        for name, value in logs.items():
            others = [other for at, other in logs.items() if at != name]
            if others:
                errors.setdefault((name, kind), []).append(value - fmean(others))
    found = {}
    for key, differences in errors.items():
        k, middle = len(differences), fmean(differences)
        if k < _PAIRS_MIN:
            continue
        error = stdev(differences) / math.sqrt(k)
        half = float(stdtrit(k - 1, 1 - _TAIL / 2)) * error
        ends = (math.exp(middle - half), math.exp(middle + half))
        beyond = abs(middle) - _MARGIN
        t = beyond / error if error > 0 else math.copysign(math.inf, beyond)
        found[key] = (2 * float(stdtr(k - 1, -t)), Estimate(math.exp(middle), *ends, k))
    return found
