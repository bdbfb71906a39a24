"""Conditions on a trial's answer, as `--fail-if` takes them: `missed > 5%`, `p99 > 250ms`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from msgspec import Struct

from pgpaces.analysis.summary import Summary
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.core.errors import PlanError
from pgpaces.core.metrics import SHARES, TIMES
from pgpaces.core.units import NUMBER, duration_ns, rate_per_s

_COUNTS = (*SHARES, "on_time")
_TIMES = (*TIMES, "max")
_NAMES = [*_COUNTS, *_TIMES, "throughput"]
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_FORM = re.compile(
    r"\s*(?:(latency|lag|service)\.)?([a-z_0-9.]+(?: time)?)\s*(>=|<=|>|<)\s*(.+?)\s*"
)


class Condition(Struct, frozen=True):
    """A condition on a value. value: from a summary, in the unit of the bound."""

    text: str
    value: Callable[[Summary], float]
    compare: Callable[[float, float], bool]
    bound: float
    unit: str

    def __call__(self, summary: Summary) -> bool:
        """Whether it is true. Without due transactions it is: a run must not pass by default."""
        return summary.counts.due == 0 or self.compare(self.value(summary), self.bound)

    def measured(self, summary: Summary) -> str:
        if summary.counts.due == 0:
            return "nothing was due"
        value = self.value(summary)
        if math.isinf(value):
            return "it is above every time"
        return f"it is {f'{value:,.0f}' if value >= 1000 else f'{value:.4g}'}{self.unit}"


def parse_condition(text: str) -> Condition:
    """The condition in a text. Raises PlanError.

    It compares measured values, not their intervals.

    Counts take a percentage of due transactions, or a number of `transactions`; times take a
    duration and mean the latency, or `lag.p99`, `service.p50`; `throughput` takes transactions per
    second. A quantile that falls among transactions that never succeeded is above every time.
    """
    error = PlanError("bad-condition", condition=text, names=_NAMES)
    if not (match := _FORM.fullmatch(text)):
        raise error
    kind, name, bound = match[1], match[2].replace("on time", "on_time"), match[4]
    number = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%|transactions?|)", bound)
    value: Callable[[Summary], float]
    if name in _TIMES:
        if re.fullmatch(NUMBER, bound):
            raise PlanError("time-without-unit", condition=text, bound=bound)
        limit, unit = duration_ns(bound, "the time in --fail-if") / 1e6, " ms"
        value = partial(_time, kind=kind or "latency", quantile=name)
    elif name == "throughput" and kind is None:
        limit, unit = rate_per_s(bound, "the throughput in --fail-if"), "/s"
        value = attrgetter("throughput.value")
    elif name not in _COUNTS or kind is not None or not number:
        raise error
    elif number[2] == "%":
        limit, unit = float(number[1]), "%"
        value = lambda summary: 100 * getattr(summary.counts, name) / summary.counts.due  # noqa: E731
    elif number[2] or not float(number[1]):
        limit, unit = float(number[1]), " transactions"
        value = attrgetter(f"counts.{name}")
    else:
        raise PlanError("count-without-unit", condition=text, bound=bound)
    return Condition(text, value, _COMPARE[match[3]], limit, unit)


def _time(summary: Summary, *, kind: str, quantile: str) -> float:
    spread: Distribution = getattr(summary, kind)
    if quantile == "max":
        return math.inf if spread.max is None else spread.max
    estimate = spread.estimate(quantile)
    return math.inf if estimate is None else estimate.value
