"""A or B from stored trials that were not run as pairs. Pure.

Trials of the blocks of an experiment are pairs. Others are compared as two groups, which is weaker:
the difference includes the drift of the machine, which nothing can remove where all of one group
ran before all of the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.cells import sound
from pgpaces.analysis.compare import ComparisonGoal, Pair, Side, Verdict
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.effect import Effect, over_trials, share_error
from pgpaces.core.metrics import is_share
from pgpaces.spec.result import Estimate

# The drift of a machine between two groups: the standard deviation of each, as in
# docs/explanation/method.md, section 6.
_DRIFT = 0.08
_TRIALS_MIN = 2


def verdict(a: Iterable[Digest], b: Iterable[Digest], goal: ComparisonGoal) -> Verdict:
    """The verdict on stored trials, without those that did not end or are invalid."""
    of_a, of_b = [d for d in a if sound(d)], [d for d in b if sound(d)]
    pairs = blocks(of_a, of_b)
    if 2 * len(pairs) >= max(len(of_a), len(of_b), 2 * _TRIALS_MIN):
        return compare.judge(pairs, goal, basis="blocks")
    order = sorted(
        [(d.trial.started_at, False) for d in of_a] + [(d.trial.started_at, True) for d in of_b]
    )
    sides = [[compare.side(d.summary) for d in of] for of in (of_a, of_b)]
    return unpaired(sides[0], sides[1], goal, mixed=is_mixed([is_b for _, is_b in order]))


def blocks(a: Iterable[Digest], b: Iterable[Digest]) -> list[Pair]:
    """Pairs of trials of one block of one experiment, whose order was random.

    The two have the same levels except of those factors in which A and B have no common level.
    """
    of_a, of_b = _levels(a), _levels(b)
    values = [
        {n: {levels.get(n) for levels, _ in of} for n in {n for levels, _ in of for n in levels}}
        for of in (of_a, of_b)
    ]
    compared = {name for name in values[0] if not values[0][name] & values[1].get(name, set())}

    def keyed(of: Sequence[tuple[Mapping[str, str], Digest]]) -> dict[object, Digest]:
        return {_key(levels, digest, compared): digest for levels, digest in of}

    keyed_a, keyed_b = keyed(of_a), keyed(of_b)
    return [
        Pair(number, compare.side(keyed_a[key].summary), compare.side(keyed_b[key].summary))
        for number, key in enumerate((key for key in keyed_a if key in keyed_b), 1)
    ]


def _levels(digests: Iterable[Digest]) -> list[tuple[Mapping[str, str], Digest]]:
    return [(d.trial.place.levels, d) for d in digests if d.trial.place is not None]


def _key(levels: Mapping[str, str], digest: Digest, compared: set[str]) -> object:
    place = digest.trial.place
    assert place is not None, "it has levels"
    rest = sorted(pair for pair in levels.items() if pair[0] not in compared)
    return place.experiment, place.block, tuple(rest)


def is_mixed(order: Sequence[bool]) -> bool:
    """Whether the trials of two groups alternated; order: whether each is of B, by time.

    A random order changes groups 2 a b / (a + b) times; mixed is half of that, at least 2.
    """
    changes = sum(one != other for one, other in itertools.pairwise(order))
    b = sum(order)
    return changes >= max(2, b * (len(order) - b) / max(1, len(order)))


def unpaired(a: Sequence[Side], b: Sequence[Side], goal: ComparisonGoal, *, mixed: bool) -> Verdict:
    """Two groups of trials by Welch's test on the logarithms, or shares, of each trial.

    mixed: they alternated. If not, a drift of 8% (standard deviation) of each group's level is
    added to the error, so that there is a verdict on a large difference and none on a small one. A
    share near its limit moves much more than the machine does, so there is no verdict on shares.
    """
    metric = goal.metric
    basis: compare.Basis = "trials" if mixed else "apart"
    count = min(len(a), len(b))
    base = Verdict("unknown", "few", metric, goal.margin, count, basis)
    defined, effect = _effect(a, b, metric, mixed=mixed)
    if defined < len(a) + len(b):
        return replace(base, why="unbounded", undefined=len(a) + len(b) - defined)
    if effect is None:
        return replace(base, estimate=_alone(a, b, metric), needed=_TRIALS_MIN)
    others = []
    for other in goal.secondary:
        n, of_other = _effect(a, b, other, mixed=mixed)
        if of_other and n == len(a) + len(b) and (mixed or not is_share(other)):
            others.append((other, of_other))
    verdict = compare.conclude(replace(base, secondary=compare.secondaries(others)), effect)
    # More trials do not decrease the drift between groups that did not alternate.
    if mixed or (not is_share(metric) and verdict.outcome != "unknown"):
        return verdict
    return replace(verdict, outcome="unknown", why="apart", needed=None)


def _effect(
    a: Sequence[Side], b: Sequence[Side], metric: str, *, mixed: bool
) -> tuple[int, Effect | None]:
    of_a, of_b = compare.numbers(a, metric), compare.numbers(b, metric)
    share = is_share(metric)
    error_min = share_error(compare.hits(a), compare.hits(b)) if share else 0.0
    effect = over_trials(of_a, of_b, error_min)
    if effect is not None and not mixed and not share:
        error = math.hypot(effect.error, _DRIFT * math.sqrt(2))
        # The drift is a constant, not an estimate: it costs no degrees of freedom.
        freedom = effect.freedom * (error / effect.error) ** 4 if effect.error else math.inf
        effect = Effect(effect.value, error, min(freedom, 1e9), effect.n)
    return len(of_a) + len(of_b), effect


def _alone(a: Sequence[Side], b: Sequence[Side], metric: str) -> Estimate | None:
    of_a, of_b = compare.numbers(a, metric), compare.numbers(b, metric)
    if not of_a or not of_b:
        return None
    value = sum(of_b) / len(of_b) - sum(of_a) / len(of_a)
    return compare.alone(value, metric)
