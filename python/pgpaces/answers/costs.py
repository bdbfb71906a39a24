"""The costs of machines and their yield, in words, as a table and as plain values.

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
from pgpaces.core.units import size_text
from pgpaces.show.numbers import NOT_KNOWN, estimate_cell, rate
from pgpaces.show.screen import bounds
from pgpaces.show.section import Column, Section, Sentence, TableCell, table
from pgpaces.spec.costs import machines_of
from pgpaces.spec.design import Design, Experiment, Factor
from pgpaces.spec.result import Trial, plain

_MILLION = 1e6
_SHOWN = 3


def of_run(trial: Trial, summary: Summary) -> Economy | None:
    """The costs and yield of the machine of one run; users are those of a paced load."""
    counts = summary.counts
    start, end = summary.cut_s, summary.cut_s + summary.seconds
    means = rules.means_of_samples(trial.samples, start, end)
    late = proportion(counts.late, counts.due, summary.phi)
    return rules.economy(
        machines_of(trial.host.costs),
        rules.on_time(summary.throughput, late, counts),
        rules.users_of(trial),
        written=rules.written([(trial, means, summary.seconds)]),
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
        a_day = written.bytes_a_day
        yield (
            "written",
            said(
                "written-at-least" if _least(written) else "written-a-day",
                bytes_a_day=a_day.value,
                ci=bounds(a_day),
                source=written.source,
            ),
        )


def _least(written: Written) -> bool:
    """Whether no checkpoint ended meanwhile, so that it hardly includes data files."""
    return bool(
        written.bytes_a_day.value
        and (written.checkpoints or 0) < 1
        and written.checkpoints is not None
    )


def _millions(count: float) -> str:
    return rate(count / _MILLION)


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
    closed = all(digest.trial.plan.model == "closed" for row in rows for digest in row.every)
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


def section(machines: Sequence[Priced], *, limited: bool) -> Section:
    note = message("table-costs-passed" if limited else "table-costs")
    spare = ("a year", "users", "written a day")
    title = "What it costs"
    shown = table(
        "costs", title, _columns(machines), items=machines, labels=2, note=note, spare=spare
    )
    return Section("costs", title, tables=(shown,), rank=("details", "numbers")[len(machines) > 1])


def sentences(machines: Sequence[Priced]) -> Iterator[Sentence]:
    for one in machines[:_SHOWN]:
        texts = [
            str(each) for name, each in values(one.economy) if one.passes or name != "for that"
        ]
        place = {"machine": one.name or "this machine", "cell": cell_name(one.row.cell)}
        name = "costs-of-machine" if one.passes else "costs-of-machine-unknown"
        yield Sentence(message(name, texts=texts, **place))
    if len(machines) > _SHOWN:
        yield Sentence(message("costs-more", count=len(machines) - _SHOWN))


def _columns(machines: Sequence[Priced]) -> list[Column[Priced]]:
    currencies = {one.economy.currency for one in machines}
    unit = currencies.pop() if len(currencies) == 1 else "unit"
    every: list[Column[Priced]] = [
        ("a month", lambda one: _amount(one, one.economy.month)),
        ("a year", lambda one: _amount(one, one.economy.year)),
        ("users", lambda one: _number(one, one.economy.users)),
        (f"users per {unit} a month", lambda one: _number(one, one.economy.users_per_unit)),
        (
            f"million on time per {unit}",
            lambda one: (
                estimate_cell(one.economy.per_unit, _millions)
                if one.passes and one.economy.per_unit is not None
                else NOT_KNOWN
            ),
        ),
        ("written a day", _written_cell),
    ]
    labels: list[Column[Priced]] = [
        ("machine", lambda one: one.name or "this machine"),
        (
            "at",
            lambda one: TableCell(
                cell_name(one.row.cell), "" if one.passes else "not known to pass"
            ),
        ),
    ]
    shown = [each for each in every if any(each[1](one) != NOT_KNOWN for one in machines)]
    return [*labels, *shown]


def _amount(one: Priced, value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{rate(value)} {one.economy.currency}"


def _number(one: Priced, value: float | None) -> str:
    return rate(value) if one.passes and value is not None else NOT_KNOWN


def _written_cell(one: Priced) -> TableCell | str:
    written = one.economy.written
    if written is None:
        return NOT_KNOWN
    least = "over " if _least(written) else ""
    return TableCell(f"{least}{size_text(written.bytes_a_day.value)}", written.source)


def as_json(economy: Economy) -> dict[str, Any]:
    """The economy as plain values: amounts in the currency, seconds, bytes."""
    return {**plain(economy), "year": economy.year}


def row_values(economy: Economy | None) -> dict[str, Any]:
    one = economy or rules.Economy("")
    ends = one.per_unit if one.per_unit and one.per_unit.estimable else None
    return {
        "currency": one.currency or None,
        "cost_month": one.month,
        "cost_year": one.year,
        "users": one.users,
        "on_time_per_unit": one.per_unit.value if one.per_unit else None,
        "on_time_per_unit_low": ends.low if ends else None,
        "on_time_per_unit_high": ends.high if ends else None,
        "users_per_unit_month": one.users_per_unit,
        "written_bytes_a_day": one.written.bytes_a_day.value if one.written else None,
    }
