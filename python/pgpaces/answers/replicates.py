"""Machines of one kind: does one of them stand apart from the others? Digests in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev

from msgspec import Struct

from pgpaces.answers.cells import board, sound
from pgpaces.answers.digest import Digest
from pgpaces.answers.distributions import student_cdf, student_quantile
from pgpaces.design import Cell
from pgpaces.result import Estimate

_TAIL = 0.05
_MARGIN = math.log(1.05)
_PAIRS_MIN = 3

Logs = Mapping[str, float]


class Apart(Struct, frozen=True):
    """A machine against the others of its kind.

    ratio: its mean service time over theirs, with the interval of Student's t over pairs (n).
    apart: it differs by more than 5 %, be it said of one machine too many in 5 % of experiments at
    most. Of two machines, none can be told to be the odd one: both are apart from each other.
    """

    name: str
    kind: str
    ratio: Estimate
    apart: bool


def compare(digests: Iterable[Digest], kinds: Mapping[str, str]) -> tuple[Apart, ...]:
    """Each machine of a kind that has several, as far as there are three pairs of it.

    A pair: the logarithm of a machine's mean service time in a cell and block, less the mean of
    those of the others of its kind in the same cell and block. Student's two-sided test of
    |log ratio| <= log 1.05 over the pairs, at 5 % over as many machines as are left, of all kinds
    (Holm 1979). Of the machines that it finds the one that differs most is apart; then it is no
    yardstick for the others any more, and the rest is looked at anew, so that a slow machine does
    not make the good ones look fast (swamping: Rosner, Technometrics 25, 1983).
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
    tests = sum(len(set().union(*found)) for found in by_kind.values())
    return tuple(each for kind, found in by_kind.items() for each in judged(kind, found, tests))


def judged(kind: str, groups: Sequence[Logs], tests: int) -> Iterator[Apart]:
    """The machines of a kind, those that are apart first. tests: machines of all kinds."""
    left = list(dict.fromkeys(name for logs in groups for name in logs))
    while True:
        found = {name: _against(name, left, groups) for name in left}
        able = {name: test for name, test in found.items() if test}
        if not able:
            return
        apart = [name for name, (p, _) in able.items() if p < _TAIL / tests]
        if not apart or len(left) < 3:
            both = bool(apart)
            yield from (Apart(name, kind, ratio, both) for name, (_, ratio) in able.items())
            return
        first = max(apart, key=lambda name: abs(math.log(able[name][1].value)))
        yield Apart(first, kind, able[first][1], True)
        left.remove(first)
        tests -= 1


def _against(
    name: str, left: Sequence[str], groups: Sequence[Logs]
) -> tuple[float, Estimate] | None:
    """p and ratio of a machine against the others that are left; None of too few pairs."""

    errors = [
        logs[name] - fmean(others)
        for logs in groups
        if name in logs and (others := [logs[n] for n in left if n in logs and n != name])
    ]
    if len(errors) < _PAIRS_MIN:
        return None
    k, middle = len(errors), fmean(errors)
    error = stdev(errors) / math.sqrt(k)
    half = student_quantile(k - 1, 1 - _TAIL / 2) * error
    ends = (math.exp(middle - half), math.exp(middle + half))
    beyond = abs(middle) - _MARGIN
    t = beyond / error if error > 0 else math.copysign(math.inf, beyond)
    return 2 * student_cdf(k - 1, -t), Estimate(math.exp(middle), *ends, k)
