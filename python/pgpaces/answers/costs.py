"""The costs of machines and their yield, in words and as plain values.

Names and currencies are unescaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pgpaces.analysis import costs as rules
from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.costs import Economy, Priced, Written
from pgpaces.analysis.stats import proportion
from pgpaces.analysis.summary import Summary
from pgpaces.answers.trials import cell_name
from pgpaces.core.messages import Message, message, said
from pgpaces.show.screen import bounds
from pgpaces.show.section import Values
from pgpaces.spec.costs import machines_of
from pgpaces.spec.design import Design, Experiment, Factor
from pgpaces.spec.result import Trial, plain

# What a machine that passes buys.
_BOUGHT = ("costs-users", "costs-transactions")


def of_run(trial: Trial, summary: Summary) -> Economy | None:
    """The costs and yield of the machine of one run; users are those of a paced load."""
    counts = summary.counts
    start, end = summary.cut_s, summary.cut_s + summary.seconds
    means = rules.means_of_samples(trial.samples, start, end)
    late = proportion(counts.late, counts.due, summary.clusters.phi)
    return rules.economy(
        machines_of(trial.host.costs),
        rules.on_time(summary.throughput, late, counts),
        rules.users_of(trial),
        written=rules.written([(means, summary.seconds)]),
    )


def values(economy: Economy, summary: Summary | None = None) -> Iterator[tuple[str, Message]]:
    """The costs and what they buy. summary: of the run, if it served anybody."""
    currency = economy.currency
    if economy.month is not None:
        month, year = economy.month, economy.year or 0.0
        yield "costs", said("costs-month", month=month, year=year, currency=currency)
    if summary is None or summary.counts.on_time:
        if economy.users_per_unit is not None:
            users = {"users": economy.users, "each": economy.users_per_unit}
            yield "for that", said("costs-users", currency=currency, **users)
        if (each := economy.per_unit) is not None:
            of = {"transactions": each.value, "ci": bounds(each), "currency": currency}
            yield "for that", said("costs-transactions", **of)
    if (written := economy.written) is not None:
        a_day = {"bytes_a_day": written.bytes_a_day.value, "ci": bounds(written.bytes_a_day)}
        name = "written-at-least" if _least(written) else "written-a-day"
        yield "written", said(name, **a_day)


def _least(written: Written) -> bool:
    """Whether no checkpoint ended meanwhile, so that it hardly includes data files."""
    return written.bytes_a_day.value > 0 and written.checkpoints < 1


def of_cells(
    rows: Sequence[Row],
    experiment: Experiment | None,
    factors: Sequence[Factor],
    *,
    missed_max: float,
    limited: bool,
) -> tuple[tuple[Priced, ...], dict[str, Economy]]:
    """The machines of an experiment, and the economy of each cell by its key.

    factors: those shown; limited: with a limit.
    """
    # A client is a user if it has a rate or pauses, and the number of clients is set.
    design = experiment.design if experiment else Design()
    named = {*design.fixed, *(factor.name for factor in (*design.factors, *factors))}
    closed = all(digest.trial.plan.load.model == "closed" for row in rows for digest in row.every)
    clients = "clients" in named and (closed or "rate_per_client" in named)
    every = ((row, rules.of_row(row, clients=clients)) for row in rows if row.trials)
    economies = tuple((row, economy) for row, economy in every if economy is not None)

    def passes(row: Row) -> bool:
        return crossing.verdict(row, missed_max) == "pass" if limited else row.sound

    by_cell = {row.cell.key: economy for row, economy in economies}
    return rules.priced(economies, passes), by_cell


def document(machines: Sequence[Priced]) -> list[dict[str, Any]]:
    return [
        {"machine": one.name, "cell": one.row.cell.key, "held": one.passes, **as_json(one.economy)}
        for one in machines
    ]  # fmt: skip


def of_machines(machines: Sequence[Priced]) -> Values:
    for one in machines:
        shown = [each for _, each in values(one.economy)]
        texts = [str(each) for each in shown if one.passes or each.name not in _BOUGHT]
        place = {
            "machine": one.name or message("this-machine"),
            "cell": cell_name(one.row.cell),
        }
        name = "costs-of-machine" if one.passes else "costs-of-machine-unknown"
        yield "costs", said(name, texts=texts, **place)


def as_json(economy: Economy) -> dict[str, Any]:
    """The economy as plain values: amounts in the currency, seconds, bytes."""
    return {**plain(economy), "year": economy.year}
