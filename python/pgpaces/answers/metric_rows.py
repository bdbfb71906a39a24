"""The numbers of trials and cells: as rows of an answer, and as metrics of tables and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgpaces.analysis.parts import Part
from pgpaces.analysis.summary import BackgroundSummary, ScriptSummary, StatementSummary, Summary
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.core import metrics
from pgpaces.core.metrics import TIMES
from pgpaces.show.section import Number
from pgpaces.spec.result import CLASSES, Counts, Estimate

Of = Mapping[str, str | None]


def known(of: Of, numbers: Mapping[str, Estimate | None]) -> Iterator[Number]:
    """Those of the numbers that have a value."""
    yield from (Number(of, name, each) for name, each in numbers.items() if each is not None)


def of_counts(of: Of, counts: Counts) -> Iterator[Number]:
    """What was due, and the share of each outcome, without intervals."""
    yield Number(of, "due", Estimate.alone(float(counts.due), counts.due))
    for name in CLASSES if counts.due else ():
        share = Estimate.alone(getattr(counts, name) / counts.due, counts.due)
        yield Number(of, name, share)


def of_times(of: Of, distribution: Distribution) -> Iterator[Number]:
    """A distribution of times in milliseconds."""
    yield from known(of, {name: distribution.estimate(name) for name in TIMES})
    for name, value in (("sd", distribution.sd), ("max", distribution.max)):
        if value is not None:
            yield Number(of, name, Estimate.alone(value, distribution.count))


def statement_names(statements: Iterable[StatementSummary | Part]) -> Iterator[str]:
    """SCRIPT:LINE of each; of several on one line the second is SCRIPT:LINE.2."""
    seen: Counter[str] = Counter()
    for each in statements:
        name = f"{each.script}:{each.line}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}.{seen[name]}"


def with_names(statements: Sequence[Part]) -> Iterator[tuple[Part, str]]:
    """The statements of all cells, each with its name, which is the same in all of them."""
    first = {(each.script, each.line, each.text): each for each in statements}
    names = dict(zip(first, statement_names(first.values()), strict=True))
    yield from ((each, names[each.script, each.line, each.text]) for each in statements)


def of_summary(summary: Summary, of: Of | None = None) -> Iterator[Number]:
    """Those of a trial, of its scripts, statements, and background workloads.

    of: the trial's own keys. Times are latencies unless the key `time` says lag or service.
    """
    own = dict(of or {})
    yield from _of_part(own, summary)
    yield from of_times(own | {"time": "lag"}, summary.lag)
    yield from of_times(own | {"time": "service"}, summary.service)
    for script in summary.scripts:
        yield from _of_part(own | {"script": script.name}, script)
    for each, name in zip(summary.statements, statement_names(summary.statements), strict=True):
        yield from of_times(own | {"statement": name}, each.times)
    for other in summary.background:
        yield from _of_part(own | {"background": other.name}, other)


def _of_part(of: Of, part: Summary | ScriptSummary | BackgroundSummary) -> Iterator[Number]:
    yield from of_counts(of, part.counts)
    speed = None if isinstance(part, ScriptSummary) else part.throughput
    yield from known(of, {"missed": part.missed, "throughput": speed})
    yield from of_times(of, part.latency)


def scaled(name: str, estimate: Estimate | None) -> dict[str, float]:
    """value, low, and high, as far as they are known, in the unit of the axis of this metric."""
    if estimate is None:
        return {}
    every = {"value": estimate.value}
    if estimate.estimable:
        # The bar of a time without a lower bound begins at the value: from 0 it would dominate.
        open_below = estimate.low == 0 and metrics.metric(name).format == "ms"
        every |= {"low": estimate.value if open_below else estimate.low, "high": estimate.high}
    return {end: each * metrics.scale(name) for end, each in every.items()}
