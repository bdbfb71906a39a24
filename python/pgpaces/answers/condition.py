"""Conditions on a trial's answer, as `--fail-if` takes them: `missed > 5%`, `p99 > 250ms`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pgpaces.errors import PlanError
from pgpaces.units import duration_ns, rate_per_s

if TYPE_CHECKING:
    from pgpaces.answers.spread import Spread
    from pgpaces.answers.summary import Summary

_COUNTS = ("missed", "late", "skipped", "failed", "unfinished", "on_time")
_TIMES = ("p50", "p95", "p99", "p99.9", "max", "mean")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_FORM = re.compile(r"\s*([a-z_0-9.]+(?: time)?)\s*(>=|<=|>|<)\s*(.+?)\s*")


def parse(text: str) -> Callable[[Summary], bool]:
    """The condition as a function of a summary. Raises PlanError.

    A trial in which nothing was due meets every condition: there is nothing to pass it by.

    It looks at the values that were measured, not at their intervals.

    Counts take a number or a percentage of what was due; times take a duration and mean the
    latency, or `lag.p99`, `service.p50`; `rate` takes a rate. A quantile that falls among what
    never succeeded is above every time.
    """
    holds = _parse(text)
    return lambda summary: summary.counts.due == 0 or holds(summary)


def hangs_on_the_cut(
    holds: Callable[[Summary], bool], summary: Summary, whole: Summary | None
) -> bool:
    """Whether a condition would be decided otherwise with what was cut as warm-up.

    whole: the answer of the same trial without a cut; None where nothing was cut.
    """
    return whole is not None and holds(whole) != holds(summary)


def _parse(text: str) -> Callable[[Summary], bool]:
    found = _FORM.fullmatch(text)
    if not found:
        raise _unreadable(text)
    name, compare, bound = found[1].replace("on time", "on_time"), _COMPARE[found[2]], found[3]
    if name in _COUNTS:
        return _count(name, compare, bound, text)
    kind, quantile = _split(name)
    if quantile in _TIMES and kind in ("", "latency", "lag", "service"):
        limit_ms = duration_ns(bound, "the time in --fail-if") / 1e6
        return lambda s: compare(_time(s, kind or "latency", quantile), limit_ms)
    if name == "rate":
        rate = rate_per_s(bound, "the rate in --fail-if")
        return lambda s: compare(s.rate.value, rate)
    raise _unreadable(text)


def _split(name: str) -> tuple[str, str]:
    """`lag.p99.9` as ("lag", "p99.9"); `p99` as ("", "p99")."""
    for quantile in _TIMES:
        if name == quantile:
            return "", quantile
        if name.endswith(f".{quantile}") and name.removesuffix(f".{quantile}").isalpha():
            return name.removesuffix(f".{quantile}"), quantile
    return "", name


def _count(
    name: str, compare: Callable[[float, float], bool], bound: str, text: str
) -> Callable[[Summary], bool]:
    number = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%?)", bound)
    if not number:
        raise _unreadable(text)
    value = float(number[1])
    if number[2]:
        return lambda s: compare(100 * getattr(s.counts, name) / s.counts.due, value)
    return lambda s: compare(getattr(s.counts, name), value)


def _time(summary: Summary, kind: str, quantile: str) -> float:
    found: Spread = getattr(summary, kind)
    if quantile == "max":
        return math.inf if found.max is None else found.max
    estimate = found.estimate(quantile)
    return math.inf if estimate is None else estimate.value


def _unreadable(text: str) -> PlanError:
    return PlanError(
        f"the condition '{text}' cannot be read",
        "write NAME COMPARISON VALUE, such as 'missed > 5%', 'failed > 0', 'p99 > 250ms',"
        " 'rate < 10/s'; names: " + ", ".join((*_COUNTS, *_TIMES, "rate")),
    )
