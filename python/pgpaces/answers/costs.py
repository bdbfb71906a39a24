"""What machines cost a month, and what that buys: users, transactions, years of a card. Pure.

A year has 8760 hours and a month a twelfth of them, 730, as providers of machines count. Amounts
are of a currency; several machines add up where all are of the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from pgpaces import costs as stored
from pgpaces.answers import across
from pgpaces.answers.cells import Row, board
from pgpaces.answers.digest import Digest
from pgpaces.answers.write_volume import NAME, SOURCE, by_server
from pgpaces.costs import Costs
from pgpaces.design import HERE
from pgpaces.result import Counts, Estimate, Sample, Trial

HOURS_A_YEAR = 8760.0
MONTHS = 12
HOURS_A_MONTH = HOURS_A_YEAR / MONTHS
_DAY_S = 86_400
_DAYS_A_YEAR = 365
_KB = 1024
_TB = 1e12
SERVER = "by the server's counters, without what its file system adds"
# Disks that are none, or are parts of others.
_VIRTUAL = ("dm-", "loop", "md", "ram", "sr", "zram")


class Written(Struct, frozen=True):
    """What the server's data wrote a day, in bytes, at the rate of its trials.

    source: whose count that is: the server's, or that of a whole disk, with what others wrote to
    it. checkpoints: how many ended meanwhile; without one, most of what goes to data files is not
    in it. None: not known.
    """

    bytes_a_day: Estimate
    source: str
    checkpoints: float | None = None


class Economy(Struct, frozen=True):
    """What machines cost and what that buys; None: not known.

    month: in `currency`, price and energy, or what is known of the two: price, energy. watts: of
    all machines. users: that the machines served. on_time: transactions a second. per_unit:
    transactions on time for one unit of the currency. users_per_unit: users for one unit of it a
    month. users_per_watt. written: see there. card_years: until the card's endurance is used up.
    """

    currency: str
    price: float | None = None
    energy: float | None = None
    watts: float | None = None
    users: int | None = None
    on_time: Estimate | None = None
    per_unit: Estimate | None = None
    users_per_unit: float | None = None
    users_per_watt: float | None = None
    written: Written | None = None
    card_years: float | None = None

    @property
    def month(self) -> float | None:
        """A month's cost."""
        known = [part for part in (self.price, self.energy) if part is not None]
        return sum(known) if known else None

    @property
    def year(self) -> float | None:
        """A year's cost."""
        return None if self.month is None else MONTHS * self.month


def price_a_month(one: Costs) -> float | None:
    """price_per_month, or price_per_h x 730 h, or price / (12 x lifetime_years)."""
    if one.price_per_month is not None:
        return one.price_per_month
    if one.price_per_h is not None:
        return one.price_per_h * HOURS_A_MONTH
    if one.price is not None and one.lifetime_years is not None:
        return one.price / (MONTHS * one.lifetime_years)
    return None


def energy_a_month(one: Costs) -> float | None:
    """watts / 1000 x 730 h x energy_price_per_kwh."""
    if one.watts is None or one.energy_price_per_kwh is None:
        return None
    return one.watts / 1000 * HOURS_A_MONTH * one.energy_price_per_kwh


def an_hour(one: Costs) -> float | None:
    """What an hour costs, energy included: (price + energy a month) / 730 h. None: not known."""
    known = [part for part in (price_a_month(one), energy_a_month(one)) if part is not None]
    return sum(known) / HOURS_A_MONTH if known else None


def _sum(machines: Sequence[Costs], read: Callable[[Costs], float | None]) -> float | None:
    """Over all machines; None where it is not known of all."""
    found = [read(one) for one in machines]
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


def on_time(rate: Estimate | None, late: Estimate | None, counts: Counts) -> Estimate | None:
    """Transactions on time a second: rate x (1 - late / succeeded).

    rate: of what succeeded, a second. late: share of what was due. The interval goes from the
    lowest rate with the largest share to the highest rate with the smallest one.
    """
    succeeded = counts.on_time + counts.late
    if rate is None or late is None or not succeeded:
        return None
    if not counts.late:
        return rate
    scale = counts.due / succeeded

    def kept(share: float) -> float:
        return max(0.0, 1 - share * scale)

    low, high = rate.low * kept(late.high), rate.high * kept(late.low)
    if not (rate.estimable and late.estimable):
        return Estimate.alone(rate.value * kept(late.value), rate.n)
    return Estimate(rate.value * kept(late.value), low, high, rate.n)


def economy(
    machines: Sequence[Costs],
    served: Estimate | None = None,
    users: int | None = None,
    written: Written | None = None,
) -> Economy | None:
    """What these machines cost, and what that buys at a load. None where nothing is known.

    machines: all that the load needs; the first one's card holds the data. served: transactions on
    time a second. users: how many it served.

    per unit = served x 3600 x 730 / month; users per unit = users / month; users per watt =
    users / watts; years of the card = endurance_tb x 10^12 / (bytes a day x 365).
    """
    if not machines:
        return None
    currencies = {one.currency for one in machines}
    together = len(currencies) == 1
    found = Economy(
        currency=" and ".join(sorted(currencies)),
        price=_sum(machines, price_a_month) if together else None,
        energy=_sum(machines, energy_a_month) if together else None,
        watts=_sum(machines, lambda one: one.watts),
        users=users,
        on_time=served,
        written=written,
        card_years=card_years(machines[0], written),
    )
    return replace(
        found,
        per_unit=_times(served, _per(HOURS_A_MONTH * 3600, found.month)),
        users_per_unit=_per(users, found.month),
        users_per_watt=_per(users, found.watts),
    )


def _per(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def _times(estimate: Estimate | None, factor: float | None) -> Estimate | None:
    if estimate is None or factor is None:
        return None
    value = estimate.value * factor
    if not estimate.estimable:
        return Estimate.alone(value, estimate.n)
    return Estimate(value, estimate.low * factor, estimate.high * factor, estimate.n)


def card_years(one: Costs, written: Written | None) -> float | None:
    """endurance_tb x 10^12 / (bytes a day x 365)."""
    if one.endurance_tb is None or written is None:
        return None
    return _per(one.endurance_tb * _TB, written.bytes_a_day.value * _DAYS_A_YEAR)


def machines_of(trial: Trial) -> tuple[Costs, ...]:
    """The machines of a trial's servers, as they were priced when it ran; none: not known."""
    listed = trial.host.costs
    found = [stored.read(each) for each in listed] if isinstance(listed, list | tuple) else []
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(found) else ()


def users_of(trial: Trial, *, clients: bool = False) -> int | None:
    """How many users a trial had: those of a paced load; clients: each client is one as well.

    Clients of workloads that ran beside it are none of its own.
    """
    if not clients and trial.plan.model != "paced":
        return None
    return trial.plan.own_clients


Means = dict[tuple[str, str], float]


def means_of_samples(samples: Iterable[Sample], start: int, end: float) -> Means:
    """The mean of each sensor over the seconds from start to end, by source and name.

    For events, which have no unit, it is their number a second.
    """
    found: dict[tuple[str, str], list[float]] = {}
    every = list(samples)
    for sample in (*every, *by_server(every)):
        if start <= sample.second < end:
            found.setdefault((sample.source, sample.name), []).append(sample.value)
    return {key: fmean(values) for key, values in found.items()}


def means_of_digest(digest: Digest) -> Means:
    """The same of a digest, which keeps means over some seconds each."""
    kept = [bucket.start_s >= digest.summary.cut_s for bucket in digest.series]
    found = {}
    for track in digest.tracks:
        pairs = zip(track.values, kept, strict=False)
        values = [value for value, counts in pairs if counts and value is not None]
        if values:
            found[track.source, track.name] = fmean(values)
    return found


def written(trials: Sequence[tuple[Trial, Means, float]]) -> Written | None:
    """What trials of a cell wrote: each with the means of its sensors, and its seconds.

    What the server counted; where it was not read, all that was written to the disk of the data, or
    to the only one that there is. The same for all of them, or nothing.
    """
    found = [_written(trial, means) for trial, means, _ in trials]
    values = [Estimate.alone(each[0] * _DAY_S, 1) for each in found if each is not None]
    sources = {each[1] for each in found if each is not None}
    if not found or len(values) < len(found) or len(sources) != 1:
        return None
    mean = across.together([values], bounded=False)
    if mean is None:
        return None
    counted = [_checkpoints(means) for _, means, _ in trials]
    seconds = [length for _, _, length in trials]
    ended = None
    if all(count is not None for count in counted):
        ended = sum((c or 0.0) * length for c, length in zip(counted, seconds, strict=True))
    return Written(mean, sources.pop(), ended)


def _checkpoints(means: Means) -> float | None:
    """How many ended a second. A counter that never moved has no samples, read as it was."""
    read = any(source in ("database", "wal") for source, _ in means)
    return means.get(("checkpoints", "checkpoints"), 0.0 if read else None)


def _written(trial: Trial, means: Means) -> tuple[float, str] | None:
    """Bytes a second, and of what."""
    server = means.get((SOURCE, NAME))
    if server is not None:
        return server, SERVER
    names = [
        name.removeprefix("disk_").removesuffix("_written")
        for source, name in means
        if source == "host" and name.startswith("disk_") and name.endswith("_written")
    ]
    data = trial.host.data_disk
    real = [name for name in names if not name.startswith(_VIRTUAL)]
    disk = data if data in names else real[0] if data is None and len(real) == 1 else None
    if disk is not None:
        of = f"whole disk {disk}, also what others wrote"
        return means["host", f"disk_{disk}_written"] * _KB, of
    return None


def of_row(row: Row, *, clients: bool) -> Economy | None:
    """What the machines of a cell cost and buy; None where its trials' machines differ in that.

    clients: each of its clients is a user.
    """
    machines = {machines_of(digest.trial) for digest in row.trials}
    if len(machines) != 1:
        return None
    users = {users_of(digest.trial, clients=clients) for digest in row.trials}
    seen = [(d.trial, means_of_digest(d), d.summary.seconds) for d in row.trials]
    return economy(
        machines.pop(),
        on_time(row.rate, row.late, row.counts),
        users.pop() if len(users) == 1 else None,
        written(seen),
    )


class Priced(Struct, frozen=True):
    """A machine, and its economy at one of its cells: the largest that held, else the busiest.

    name: of the targets or of the machine. held: it did, or there is no limit to hold.
    """

    name: str
    row: Row
    economy: Economy
    held: bool


def priced(
    economies: Sequence[tuple[Row, Economy]], holds: Callable[[Row], bool]
) -> tuple[Priced, ...]:
    """Each machine with its largest cell: most users, else most transactions on time."""
    machines: dict[tuple[str, tuple[Costs, ...]], list[Priced]] = {}
    for row, found in economies:
        trial = row.trials[0].trial
        name = _name(row)
        machines.setdefault((name, machines_of(trial)), []).append(
            Priced(name, row, found, holds(row))
        )

    def size(one: Priced) -> tuple[int, float]:
        served = one.economy.on_time
        return one.economy.users or 0, served.value if served else 0.0

    best = []
    for cells in machines.values():
        able = [one for one in cells if one.held]
        best.append(max(able, key=size) if able else max(cells, key=lambda one: size(one)[1]))
    return tuple(best)


def _name(row: Row) -> str:
    """Of its machines: their targets, else where the server is, else what the machine is called."""
    targets = sorted({found for digest in row.trials if (found := board(digest)) != HERE})
    if targets:
        *others, last = targets
        return f"each of {', '.join(others)} and {last}" if others else last
    trial = row.trials[0].trial
    there = trial.server.target.get("host", "")
    elsewhere = there and not there.startswith(("/", "@"))
    return there if elsewhere else trial.host.hostname or ""
