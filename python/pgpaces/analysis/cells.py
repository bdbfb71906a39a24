"""The cells of an experiment as rows of a table: estimates over the trials of each cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import astuple

from pgpaces.analysis import across, bulk
from pgpaces.analysis.digest import Digest, windows
from pgpaces.analysis.stats import dispersion, proportion
from pgpaces.analysis.stopping import LookSchedule
from pgpaces.core.metrics import SHARES, TIMES
from pgpaces.spec.design import HERE, Cell
from pgpaces.spec.result import Counts, Estimate


class Row(Struct, frozen=True):
    """A cell and the estimates of its trials.

    trials: those that are evaluated. left_out: invalid ones where valid ones exist, and unfinished
    ones where finished ones exist; superseded: earlier attempts. sound: the trials are finished and
    valid. estimates: by metric, if there are data; shares from 0 to 1 of due, times in ms.
    """

    cell: Cell
    trials: tuple[Digest, ...] = ()
    left_out: tuple[Digest, ...] = ()
    superseded: tuple[Digest, ...] = ()
    sound: bool = False
    counts: Counts = field(default_factory=Counts)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)

    def estimate(self, name: str) -> Estimate | None:
        return self.estimates.get(name)

    @property
    def defect(self) -> str:
        """Why nothing is concluded from the cell, in a word or two; empty for a sound one."""
        return "" if self.sound or not self.trials else defect(self.trials[0])

    @property
    def every(self) -> tuple[Digest, ...]:
        """All trials of the cell by start, also those that are not evaluated."""
        trials = (*self.trials, *self.left_out, *self.superseded)
        return tuple(sorted(trials, key=lambda digest: digest.trial.started_at))


def board(digest: Digest) -> str:
    """The machine of a trial: its target, by name."""
    place = digest.trial.place
    return place.levels.get("target", HERE) if place else HERE


def defect(digest: Digest) -> str:
    """Why nothing is concluded from a trial: "invalid", or its state; empty for a sound one."""
    if digest.summary.validity.state != "valid":
        return "invalid"
    state = digest.trial.state
    return {"finished": "", "failed": "incomplete"}.get(state, state)


def sound(digest: Digest) -> bool:
    return not defect(digest)


def rows(
    cells: Iterable[Cell],
    digests: Iterable[Digest],
    kinds: Mapping[str, str] | None = None,
    *,
    looks: LookSchedule | None = None,
) -> tuple[Row, ...]:
    """A row for each cell, in their order, also for cells without trials.

    kinds: the kind of each target that has one. Targets of a kind are replicates of one cell.
    looks: see `row`.
    """
    groups: dict[str, tuple[Cell, list[Digest]]] = {}
    of_cell = {}
    for cell in cells:
        levels = dict(cell.levels)
        if "target" in levels:
            levels["target"] = (kinds or {}).get(levels["target"], levels["target"])
        merged = Cell(tuple(levels.items()))
        of_cell[cell.key] = groups.setdefault(merged.key, (merged, []))[1]
    for digest in digests:
        if digest.trial.place and digest.trial.place.cell in of_cell:
            of_cell[digest.trial.place.cell].append(digest)
    return tuple(row(*group, looks=looks) for group in groups.values())


def row(cell: Cell, digests: Sequence[Digest], *, looks: LookSchedule | None = None) -> Row:
    """The row of a cell by its trials. Of a block's attempts the newest finished one counts.

    looks: if the number of trials depends on their results, the missed share is that of the
    trials of the last look, with the errors of that look; None: all trials, and 95%.
    """
    newest, superseded = _newest(digests)
    good = tuple(digest for digest in newest if sound(digest))
    ended = good or tuple(digest for digest in newest if digest.trial.state == "finished")
    used = ended or tuple(newest)
    left_out = tuple(digest for digest in newest if digest not in used)
    if not used:
        return Row(cell)
    by_machine: dict[str, list[Digest]] = {}
    for digest in used:
        by_machine.setdefault(board(digest), []).append(digest)
    machines = list(by_machine.values())
    estimates = {
        name: trial_estimate(used[0], name)
        if len(used) == 1
        else across.share([[_hits(digest, name) for digest in trials] for trials in machines])
        for name in SHARES
    }
    if looks is not None and good:
        count, errors = looks.last(len(good))
        seen = [each.summary for each in good[:count]]
        pairs = [(each.counts.missed, each.counts.due) for each in seen]
        estimates["missed"] = across.share_at_look(pairs, [each.clusters for each in seen], errors)
    for name in ("throughput", *TIMES, "sd", "lag_p99", *bulk.NAMES):
        parts = [[trial_estimate(digest, name) for digest in trials] for trials in machines]
        estimates[name] = across.together(parts, bounded=name not in ("sd", *bulk.NAMES))
    every = (astuple(digest.summary.counts) for digest in used)
    counts = Counts(*map(sum, zip(*every, strict=True)))
    known = {name: each for name, each in estimates.items() if each is not None}
    return Row(cell, used, left_out, superseded, bool(good), counts, known)


def _newest(digests: Sequence[Digest]) -> tuple[list[Digest], tuple[Digest, ...]]:
    """The attempt of each block that counts, and the others."""
    by_start = sorted(digests, key=lambda digest: digest.trial.started_at)
    blocks: dict[object, Digest] = {}
    for digest in sorted(by_start, key=lambda digest: digest.trial.state == "finished"):
        place = digest.trial.place
        block = (board(digest), place.cell, place.block) if place else digest.trial.id
        blocks[block] = digest
    chosen = {id(digest) for digest in blocks.values()}
    others = tuple(digest for digest in digests if id(digest) not in chosen)
    return [digest for digest in by_start if id(digest) in chosen], others


def trial_estimate(digest: Digest, name: str) -> Estimate | None:
    """An estimate of one trial, by the name that it has in a row. A share has its own interval.

    None for a number of commands, if the trial has no command.
    """
    summary, latency = digest.summary, digest.summary.latency
    match name:
        case "missed" | "throughput":
            estimate: Estimate | None = getattr(summary, name)
            return estimate
        case "lag_p99":
            return summary.lag.p99
        case "sd":
            return None if latency.sd is None else Estimate.alone(latency.sd, latency.count)
        case name if name in bulk.NAMES:
            command = bulk.of(digest.trial, summary)
            return None if command is None else bulk.number(command, name)
    if name not in SHARES:
        return latency.estimate(name)
    hits, due, within = _hits(digest, name)
    return proportion(hits, due, max(1.0, within))


def _hits(digest: Digest, name: str) -> across.Hits:
    counts, cut, within = digest.summary.counts, digest.summary.cut_s, 1.0
    if name == "missed" or not digest.series:
        within = digest.summary.clusters.phi
    elif getattr(counts, name):
        used = [bucket for bucket in digest.series if bucket.start_s >= cut]
        within = dispersion(windows(used, name))
    return getattr(counts, name), counts.due, within
