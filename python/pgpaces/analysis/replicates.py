"""Machines of one kind: does one of them differ from the others? Digests in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev

from msgspec import Struct

from pgpaces.analysis.cells import board, sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.distributions import student_cdf, student_quantile
from pgpaces.spec.design import Cell
from pgpaces.spec.result import Estimate

_TAIL = 0.05
_MARGIN = math.log(1.05)
_PAIRS_MIN = 3

Logs = Mapping[str, float]


class Apart(Struct, frozen=True):
    """A machine against the others of its kind.

    ratio: its mean service time over theirs, with the interval of Student's t over pairs (n).
    apart: it differs by more than 5%; at most 5% of experiments name a machine too many. With two
    machines, either may be the odd one: both are apart from each other.
    """

    name: str
    kind: str
    ratio: Estimate
    apart: bool


def compare(digests: Iterable[Digest], kinds: Mapping[str, str]) -> tuple[Apart, ...]:
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
    return tuple(each for kind, logs in by_kind.items() for each in of_kind(kind, logs, tests))


def of_kind(kind: str, groups: Sequence[Logs], tests: int) -> Iterator[Apart]:
    """The machines of a kind, those that are apart first. tests: machines of all kinds."""
    rest = list(dict.fromkeys(name for logs in groups for name in logs))
    while True:
        results = {name: test for name in rest if (test := _against(name, rest, groups))}
        if not results:
            return
        apart = [name for name, (p, _) in results.items() if p < _TAIL / tests]
        if not apart or len(rest) < 3:
            both = bool(apart)
            yield from (Apart(name, kind, ratio, both) for name, (_, ratio) in results.items())
            return
        first = max(apart, key=lambda name: abs(math.log(results[name][1].value)))
        yield Apart(first, kind, results[first][1], True)
        rest.remove(first)
        tests -= 1


def _against(
    name: str, rest: Sequence[str], groups: Sequence[Logs]
) -> tuple[float, Estimate] | None:
    """p and ratio of a machine against the others of the rest; None with too few pairs."""
    differences = [
        logs[name] - fmean(others)
        for logs in groups
        if name in logs and (others := [logs[n] for n in rest if n in logs and n != name])
    ]
    if len(differences) < _PAIRS_MIN:
        return None
    k, middle = len(differences), fmean(differences)
    error = stdev(differences) / math.sqrt(k)
    half = student_quantile(k - 1, 1 - _TAIL / 2) * error
    ends = (math.exp(middle - half), math.exp(middle + half))
    beyond = abs(middle) - _MARGIN
    t = beyond / error if error > 0 else math.copysign(math.inf, beyond)
    return 2 * student_cdf(k - 1, -t), Estimate(math.exp(middle), *ends, k)
