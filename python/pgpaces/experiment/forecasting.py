"""What more load would do, from a page of trials: along which factor, for which lines, how far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgpaces.answers import crossing
from pgpaces.answers.crossing import Line
from pgpaces.answers.forecast import LOADS_MIN, REACH, TRIALS_MIN
from pgpaces.answers.forecasts import LineForecast, forecast_lines
from pgpaces.design import Factor
from pgpaces.errors import PlanError
from pgpaces.experiment.comparing import named
from pgpaces.report import forecasting as shown
from pgpaces.report.page import Page
from pgpaces.report.section import Section

LOADS = ("users", "clients")
# Under a rate, throughput is the rate until it is not.
_RATES = ("rate", "rate_per_client")
_LINES_MAX = 12


def forecasts(page: Page, chosen: str = "", to: float | None = None) -> tuple[LineForecast, ...]:
    """A forecast for each line of a page. Raises PlanError where there is nothing to ask it of.

    chosen: `FACTOR=LEVEL,...` of the lines that are meant. to: how far, at most 1.5 times as far as
    was tried.
    """
    factor = _factor(page)
    lines = _chosen(page, factor, chosen)
    if len(lines) > _LINES_MAX:
        raise PlanError(
            f"{len(lines)} lines are too many for a forecast each", "choose with --in FACTOR=LEVEL"
        )
    found = forecast_lines(lines, factor.name, () if to is None else (to,))
    for each in found:
        if to is not None and not 0 < to <= each.found.reach:
            raise PlanError(
                f"{to:g} {each.unit} cannot be told: {each.tried:g} were tried at most",
                f"up to {each.found.reach:g}, {REACH:g} times as many; or try more of them",
            )
    return found


def section(found: Sequence[LineForecast], page: Page, to: float | None = None) -> Section:
    """The forecasts as a section."""
    ids = tuple(digest.trial.id for digest in page.digests)
    return shown.section(found, ids, to)


def added(page: Page) -> Page:
    """The page with its forecast, where it allows one; else as it is.

    Loads that were chosen about the one that holds tell little of how throughput grows.
    """
    if page.about.chosen:
        return page
    try:
        factor = _factor(page)
    except PlanError:
        return page
    lines = [line for line in crossing.lines(page.rows, factor.name) if _enough(line)]
    found = [
        each for each in forecast_lines(lines[:_LINES_MAX], factor.name) if not each.found.refusal
    ]
    if not found:
        return page
    return replace(page, sections=(*page.sections, section(found, page)))


def _enough(line: Line) -> bool:
    """Whether a forecast is worth trying."""
    able = [row for row in line.rows if len(row.trials) >= TRIALS_MIN and row.sound]
    return len(able) >= LOADS_MIN


def _factor(page: Page) -> Factor:
    """The factor that is the load: users or clients that wait for their answers."""
    known = {factor.name: factor for factor in page.factors}
    able = [known[name] for name in LOADS if name in known and crossing.numeric(known[name])]
    models = {str(digest.trial.plan.get("model", "")) for digest in page.digests}
    if "open" in models or (not able and any(name in known for name in _RATES)):
        raise PlanError(
            "under a rate, throughput is the rate until it is not: no law carries that further",
            "try numbers of clients without one (--think-time 0), or users with a pace; how much it"
            " holds is what pgpaces capacity says",
        )
    if not able:
        raise PlanError(
            "there are no trials with several numbers of clients or users",
            f"pgpaces sweep WORKLOAD --clients 1,2,3,4,6,8 --trials {TRIALS_MIN}",
        )
    return max(able, key=lambda factor: len(factor.levels))


def _chosen(page: Page, factor: Factor, text: str) -> list[Line]:
    """The lines that have these levels, all of them where none are named."""
    lines = crossing.lines(page.rows, factor.name)
    if not text:
        return list(lines)
    wanted = named(text)
    known: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, level in line.levels:
            known.setdefault(name, {})[level] = None
    _check(wanted, known)
    return [line for line in lines if wanted.items() <= dict(line.levels).items()]


def _check(wanted: Mapping[str, str], known: Mapping[str, Mapping[str, None]]) -> None:
    for name, level in wanted.items():
        if level not in known.get(name, {}):
            every = "; ".join(f"{n}: {', '.join(own)}" for n, own in known.items())
            raise PlanError(f"no line has {name}={level}", f"there is {every or 'one line alone'}")
