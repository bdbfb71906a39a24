"""The store of all measurements.

Every interval is durable before the next one. A trial whose process died stays in state "running"
with an old heartbeat and is read as interrupted: its pending transactions count as unfinished.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from pgpaces.core import record
from pgpaces.core.errors import PlanError, StoreError, similar
from pgpaces.core.record import Interval
from pgpaces.core.series import Collection, Sample
from pgpaces.spec.result import Observed, Trial, fields
from pgpaces.store import backend, encoding, listing, names, rows, schema
from pgpaces.store.backend import Backend
from pgpaces.store.connection import Connection, Row, marks
from pgpaces.store.listing import DiskRow, ExperimentRow, PlacedTrial, TrialRow
from pgpaces.store.rows import BEFORE_ALL, ExperimentState

if TYPE_CHECKING:
    from pgpaces.analysis.digest import Digest

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BATCH = 100


def new_id() -> str:
    """A ULID: 26 characters that sort by time."""
    value = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


class Failure(Struct, frozen=True):
    """A trial that never began, and why."""

    cell: str
    block: int
    attempt: int
    at: datetime
    error: str


class Store:
    """An open store. Use `Store.open`.

    address: for messages, without secrets. path: its file; None on a server.
    """

    def __init__(self, database: Backend) -> None:
        self._backend = database
        self.address = database.address
        self.path = database.path

    @classmethod
    def open(cls, place: Path | str | None = None) -> Store:
        """Opens and upgrades the store, or creates it in an existing folder.

        place: a file, or the connection string of a PostgreSQL server; by default $PGPACES_STORE.
        Raises StoreError, and StoreVersionError for a store that another version of pgpaces wrote.
        """
        return cls(backend.opened(place))

    @classmethod
    def existing(cls, place: Path | str | None = None) -> Store:
        """Opens an existing store, which may be read-only.

        Raises StoreError if there is none, and as `open`.
        """
        return cls(backend.existing(place))

    def close(self) -> None:
        """Closes its connections; further use opens new ones."""
        self._backend.close()

    def size_bytes(self) -> int:
        return self._backend.size_bytes()

    def begin(self, trial: Trial) -> None:
        with self._backend.writing() as connection:
            connection.insert(schema.trial, [rows.new_trial(trial)])

    def add(
        self,
        trial_id: str,
        interval: Interval | None,
        samples: Iterable[Sample] = (),
        *,
        observed: Iterable[Observed] = (),
    ) -> None:
        """Stores an interval, samples, and other observations; they are durable when this returns.

        An interval and samples that are stored already stay as they are, so this can be repeated
        after a connection was lost before its answer. Observations replace the stored ones of
        their kind.
        """
        values = [{"trial": trial_id, **asdict(sample)} for sample in samples]
        with self._backend.writing() as connection:
            if interval is not None:
                own = {"trial": trial_id, "second": interval.second}
                stored = "SELECT 1 FROM interval WHERE trial = ? AND second = ?"
                if connection.rows(stored, *own.values()):
                    return
                parts: tuple[tuple[schema.Table, Sequence[Any]], ...] = (
                    (schema.interval, [interval]),
                    (schema.tally, interval.tallies),
                    (schema.statement, interval.statements),
                )
                for table, records in parts:
                    connection.insert(table, ({**own, **record.row(each)} for each in records))
                _beat(connection, trial_id)
            connection.insert(schema.sample, values, new_only=True)
            for each in observed:
                row = rows.observed_row(trial_id, each)
                connection.insert(schema.observed, [row], new_only=True)
                known = {name: value for name, value in row.items() if value}
                same = "trial = ? AND node = ?"
                connection.update(schema.observed, known, same, trial_id, each.node)

    def beat(self, trial_id: str) -> None:
        """Updates the heartbeat of a trial; call it every few seconds without a new interval."""
        with self._backend.writing() as connection:
            _beat(connection, trial_id)

    def observed(self, trial_id: str) -> tuple[Observed, ...]:
        with self._reading(f"run {trial_id}") as connection:
            return rows.observed(connection, trial_id)

    def finish(self, trial: Trial, brief: Mapping[str, Any], digest: Digest | None = None) -> None:
        values = {
            "state": trial.state,
            "ended_at": trial.ended_at,
            "measured_ns": trial.measured_ns,
            "error": trial.error,
            **rows.results_of(trial),
            "summary": dict(brief),
            **({} if digest is None else _digest_row(digest)),
        }
        with self._backend.writing() as connection:
            connection.update(schema.trial, values, "id = ?", trial.id)

    def trials(
        self,
        limit: int | None = None,
        *,
        experiment: str | None = None,
        tag: str | None = None,
        single: bool = False,
        skip: int = 0,
    ) -> list[TrialRow]:
        """The trials, newest first; only those of an experiment (its id), with a tag, or of none.

        Unreadable ones are listed as damaged. skip: the number of newer ones to leave out.
        """
        how: dict[str, Any] = {"experiment": experiment, "tag": tag, "single": single, "skip": skip}
        with self._reading("a run") as connection:
            return listing.trials(connection, limit, **how)

    def newest(self, limit: int) -> list[str]:
        """The ids of the trials that began last, without reading more of them."""
        query = "SELECT id FROM trial ORDER BY started_at DESC, id DESC LIMIT ?"
        with self._reading("a run") as connection:
            return connection.column(query, limit)

    def find(self, name: str) -> str:
        """The id of the trial that `name` means.

        `last`, a baseline, a tag (its newest), an id, or the end or start of one. Raises PlanError
        where none or several fit.
        """
        return self._find((schema.trial,), name)

    def load(self, trial_id: str) -> Trial:
        """A complete trial. Raises StoreError for a damaged one."""
        with self._reading(f"run {trial_id}") as connection:
            [row] = connection.select(schema.trial, "WHERE id = ?", trial_id)
            trial = replace(
                rows.trial(row),
                intervals=rows.intervals(connection, trial_id),
                samples=rows.series(connection, trial_id).series(),
                observed=rows.observed(connection, trial_id),
            )
            rows.check(trial)
        return trial

    def head(self, trial_id: str) -> Trial:
        """A trial without its seconds and observations, also one that runs. Raises StoreError."""
        with self._reading(f"run {trial_id}") as connection:
            for row in connection.select(schema.trial, "WHERE id = ?", trial_id):
                return rows.trial(row)
        raise StoreError(
            "not-in-store", what="run", name=trial_id, store=self.address, command="pgpaces runs"
        )

    def seconds(self, trial_id: str, after: int = BEFORE_ALL) -> tuple[Interval, ...]:
        """The intervals of a trial whose second is larger than `after`, in order."""
        with self._reading(f"run {trial_id}") as connection:
            return rows.intervals(connection, trial_id, after)

    def series(self, trial_id: str, after: int = BEFORE_ALL) -> Collection:
        """The samples of a trial; each series by second. Also while it runs.

        after: only of larger seconds.
        """
        with self._reading(f"run {trial_id}") as connection:
            return rows.series(connection, trial_id, after)

    def digests(self, trial_ids: Sequence[str]) -> list[Digest]:
        """The digests of trials, in this order.

        A stored digest is used if it is intact and by the current rules; otherwise it is computed
        from the seconds of the trial. Raises StoreError for an absent or damaged trial.
        """
        digests: list[Digest] = []
        for first in range(0, len(trial_ids), _BATCH):
            ids = trial_ids[first : first + _BATCH]
            with self._reading("a run") as connection:
                stored = connection.select(schema.trial, f"WHERE id IN {marks(ids)}", *ids)
                by_id = {row["id"]: row for row in stored}
            digests += (self._digest(id_, by_id.get(id_)) for id_ in ids)
        return digests

    def _digest(self, id_: str, row: Row | None) -> Digest:
        from pgpaces.analysis import digest as rules
        from pgpaces.store import digests

        if row is None:
            raise StoreError(
                "not-in-store", what="run", name=id_, store=self.address, command="pgpaces runs"
            )
        if row["digest"] is not None and row["digest_version"] == digests.VERSION:
            with contextlib.suppress(*encoding.UNREADABLE):
                trial = rows.trial(row)
                rows.check(trial)
                return digests.read(trial, row["digest"])
        digest = rules.digest(self.load(id_))
        if row["state"] != "running":
            # For the next call; a read-only store just does not get it.
            with contextlib.suppress(StoreError), self._backend.writing() as connection:
                connection.update(schema.trial, _digest_row(digest), "id = ?", id_)
        return digest

    def begin_experiment(self, row: ExperimentRow) -> None:
        values = {**asdict(row), "heartbeat": datetime.now(UTC)}
        own = {name: values[name] for name in schema.experiment.columns}
        with self._backend.writing() as connection:
            connection.insert(schema.experiment, [own])

    def beat_experiment(self, experiment_id: str) -> None:
        """Updates its heartbeat; call it every few seconds while none of its trials runs."""
        self._change_experiment(experiment_id, state="running", ended_at=None)

    def finish_experiment(self, experiment_id: str, state: ExperimentState) -> None:
        self._change_experiment(experiment_id, state=state, ended_at=datetime.now(UTC))

    def _change_experiment(self, id_: str, **values: Any) -> None:
        values["heartbeat"] = datetime.now(UTC)
        with self._backend.writing() as connection:
            connection.update(schema.experiment, values, "id = ?", id_)

    def claim_experiment(self, experiment_id: str) -> bool:
        """Claims an experiment to resume it; false if another pgpaces runs it.

        Of two at once, one succeeds: the first to replace the heartbeat that both have read.
        """
        values = {"state": "running", "ended_at": None, "heartbeat": datetime.now(UTC)}
        own = "SELECT heartbeat FROM experiment WHERE id = ?"
        with self._backend.writing() as connection:
            read = connection.column(own, experiment_id)
            rows = _whole(listing.experiments(connection, id_=experiment_id))
            if not rows or rows[0].state == "running":
                return False
            same = "id = ? AND heartbeat = ?"
            return connection.update(schema.experiment, values, same, experiment_id, *read) == 1

    def experiments(
        self, limit: int | None = None, skip: int = 0, *, damaged: bool = False
    ) -> list[ExperimentRow]:
        """The experiments, newest first, after those to skip; if a process died, interrupted.

        damaged: with damaged ones. Otherwise raises StoreError for one.
        """
        with self._reading("an experiment") as connection:
            rows = listing.experiments(connection, limit, skip)
            return rows if damaged else _whole(rows)

    def experiment(self, experiment_id: str) -> ExperimentRow:
        """The experiment with this id. Raises PlanError if there is none."""
        with self._reading(f"experiment {experiment_id}") as connection:
            for row in _whole(listing.experiments(connection, id_=experiment_id)):
                return row
        raise names.missing((schema.experiment,), experiment_id, [], store=self.address)

    def find_experiment(self, name: str) -> str:
        """The id of the experiment that `name` means.

        `last`, a baseline, a tag or a name (its newest), an id, or the end or start of one. Raises
        PlanError where none or several fit.
        """
        return self._find((schema.experiment,), name)

    def is_experiment(self, id_: str) -> bool:
        with self._reading("a name") as connection:
            return bool(connection.rows("SELECT 1 FROM experiment WHERE id = ?", id_))

    def ended(self, experiment_id: str) -> list[str]:
        """The ids of the trials of an experiment that do not run any more, in their order."""
        return [each.id for each in self.placed(experiment_id) if each.state != "running"]

    def placed(self, experiment_id: str) -> list[PlacedTrial]:
        with self._reading(f"a run of experiment {experiment_id}") as connection:
            return listing.placed(connection, experiment_id)

    def note_failure(
        self, experiment_id: str, cell: str, block: int, *, attempt: int, error: str
    ) -> None:
        failed = Failure(cell, block, attempt, datetime.now(UTC), error)
        same = "experiment = ? AND cell = ? AND block = ? AND attempt = ?"
        with self._backend.writing() as connection:
            # Replaces an earlier one of the same attempt.
            delete = f"DELETE FROM failure WHERE {same}"
            connection.execute(delete, experiment_id, cell, block, attempt)
            connection.insert(schema.failure, [{"experiment": experiment_id, **asdict(failed)}])

    def failures(self, experiment_id: str) -> list[Failure]:
        with self._reading(f"experiment {experiment_id}") as connection:
            rest = "WHERE experiment = ? ORDER BY at, cell, block, attempt"
            found = connection.select(schema.failure, rest, experiment_id)
            names = Failure.__struct_fields__
            return [Failure(*(row[name] for name in names)) for row in found]

    def add_disk(self, row: DiskRow) -> None:
        """Stores it, unless it is stored already: so it can be repeated."""
        values = fields(row, "id", "name", "started_at", "version")
        values |= {"host": to_builtins(row.host), "device": row.disk.device.id}
        values["document"] = to_builtins(row.disk)
        with self._backend.writing() as connection:
            connection.insert(schema.disk, [values], new_only=True)

    def disks(self) -> list[DiskRow]:
        with self._reading("a disk") as connection:
            return listing.disks(connection)

    def disk(self, name: str) -> DiskRow:
        """The disk that `name` means: `last`, its name (the newest), an id, or a part of one.

        Raises PlanError where none or several fit.
        """
        with self._reading(f"disk {name}") as connection:
            return listing.disks(connection, self._find((schema.disk,), name))[0]

    def tag(self, name: str, id_: str) -> None:
        """Tags a trial or experiment (its id). Raises PlanError for an invalid name."""
        with self._backend.writing() as connection:
            names.give(connection, schema.tag, names.checked(name), id_=id_)

    def untag(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Removes a tag from trials and experiments (ids), by default all; returns their number."""
        with self._backend.writing() as connection:
            chosen = "true" if ids is None else f"id IN {marks(ids)}"
            query = f"DELETE FROM tag WHERE name = ? AND {chosen}"
            return int(connection.execute(query, name, *(ids or ())).rowcount)

    def baseline(self, name: str, id_: str) -> None:
        """Makes a trial or experiment (its id) the baseline of this name. Raises PlanError."""
        with self._backend.writing() as connection:
            names.give(connection, schema.baseline, names.checked(name), id_=id_)

    def names(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        with self._reading("a name") as connection:
            return {id_: each for id_, each in listing.names(connection).items() if id_ in ids}

    def uncopied(self, other: Store, ids: Sequence[str] | None = None) -> list[str]:
        """The ids of runs and experiments that the other store lacks or has in an older state.

        ids: only these, with the runs of experiments and the experiments of runs among them.
        Experiments come first, then runs by age.
        """
        missing: list[set[str]] = []
        with self._reading("a run") as here, other._reading("a run") as there:
            for table in (schema.experiment, schema.trial):
                query = f"SELECT id, state, heartbeat FROM {table.name}"
                have = {id_: tuple(seen) for id_, *seen in there.each(query)}
                missing.append({id_ for id_, *seen in here.each(query)
                                if id_ not in have or _is_older(have[id_], seen)})  # fmt: skip
            if ids is not None:
                chosen = set(ids)
                for part, of in (("id", "experiment"), ("experiment", "id")):
                    query = f"SELECT {part} FROM trial WHERE {of} IN {marks(ids)}"
                    chosen |= set(here.column(query, *ids))
                missing = [each & chosen for each in missing]
        return [id_ for each in missing for id_ in sorted(each)]

    def copy(self, other: Store, id_: str) -> str | None:
        """Copies a run, or an experiment without its runs; returns why it cannot be read, if so.

        Replaces an earlier copy, and is atomic, so it can be repeated. Raises StoreError if the
        other store cannot be written.
        """
        trial, experiment, failure = schema.trial, schema.experiment, schema.failure
        try:
            with self._backend.reading() as here, other._backend.writing() as there:
                _delete(there, "id = ?", id_)
                there.insert(trial, here.select(trial, "WHERE id = ?", id_))
                for table in reversed(schema.PARTS):
                    parts = here.select(table, "WHERE trial = ?", id_, stream=True)
                    there.insert(table, parts)
                there.insert(experiment, here.select(experiment, "WHERE id = ?", id_))
                there.insert(failure, here.select(failure, "WHERE experiment = ?", id_))
        except encoding.UNREADABLE as error:
            damage = StoreError("store-damaged", what=id_, store=self.address, why=str(error))
            return damage.message
        return None

    def copy_names(self, other: Store, ids: Sequence[str] | None = None) -> None:
        """Copies tags and baselines; existing baselines there stay.

        Without ids, also copies the measurements of disks.
        """
        with self._reading("a name") as here, other._backend.writing() as there:
            kept = {row["name"] for row in there.select(schema.baseline)}
            for table, have in ((schema.tag, set()), (schema.baseline, kept)):
                for row in list(here.select(table)):
                    if row["name"] not in have and (ids is None or row["id"] in ids):
                        names.give(there, table, row["name"], id_=row["id"])
            if ids is None:
                there.insert(schema.disk, here.select(schema.disk), new_only=True)

    def delete(self, id_: str) -> None:
        """Deletes a run, or an experiment with its runs, for good.

        Raises PlanError for a running one.
        """
        query = (
            "SELECT id, heartbeat FROM trial WHERE (id = ? OR experiment = ?)"
            " AND state = 'running' UNION ALL"
            " SELECT id, heartbeat FROM experiment WHERE id = ? AND state = 'running'"
        )
        with self._reading(id_) as connection:
            for running, beat in connection.rows(query, id_, id_, id_):
                if not encoding.silent(encoding.moment(beat)):
                    raise PlanError("trial-running", id=running)
        ids = "(SELECT id FROM trial WHERE experiment = ?)"
        with self._backend.writing() as connection:
            for table in (schema.tag, schema.baseline):
                where = f"id = ? OR id IN {ids}"
                connection.execute(f"DELETE FROM {table.name} WHERE {where}", id_, id_)
            _delete(connection, "id = ? OR experiment = ?", id_, id_)

    def find_any(self, name: str) -> str:
        """The id of the trial or experiment that `name` means; `last`: of the newest trial.

        A whole name of either comes before a part of an id. Raises PlanError.
        """
        return self._find(names.ANY, name)

    def find_newest(self, name: str) -> str:
        """As find_any; `last`: of the run or the experiment that began last."""
        if name not in names.NEWEST:
            return self.find_any(name)
        runs, newest = self.trials(1), self.experiments(1)
        if not runs and not newest:
            raise names.missing((schema.trial,), name, [], store=self.address)
        # Ids are in the order of time; a run of an experiment is younger than that.
        if not runs or (newest and newest[0].id > runs[0].id):
            return newest[0].id
        return runs[0].experiment or runs[0].id

    def _find(self, tables: tuple[schema.Table, ...], name: str) -> str:
        with self._reading("a name") as connection:
            ids = names.find(connection, tables, name)
            if len(ids) == 1:
                return ids[0]
            near = similar(name, [*names.existing(connection, tables), "last"])
        raise names.missing(tables, name, ids, store=self.address, near=near)

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[Connection]:
        try:
            with self._backend.reading() as connection:
                yield connection
        except encoding.UNREADABLE as error:
            raise StoreError(
                "store-damaged", what=what, store=self.address, why=str(error)
            ) from None


def _is_older(copied: Sequence[Any], own: Sequence[Any]) -> bool:
    """Whether a copy has an earlier state. Of pairs of state and heartbeat; a damaged one is."""
    try:
        there, here = ((state, encoding.moment(beat)) for state, beat in (copied, own))
    except encoding.UNREADABLE:
        return True
    return there != here and there[1] <= here[1]


def _delete(connection: Connection, trials: str, *ids: str) -> None:
    """Deletes the trials that meet this condition, and the experiment with this id."""
    chosen = f"(SELECT id FROM trial WHERE {trials})"
    for table in schema.PARTS:
        connection.execute(f"DELETE FROM {table.name} WHERE trial IN {chosen}", *ids)
    connection.execute(f"DELETE FROM trial WHERE {trials}", *ids)
    connection.execute("DELETE FROM failure WHERE experiment = ?", ids[0])
    connection.execute("DELETE FROM experiment WHERE id = ?", ids[0])


def _whole(rows: list[ExperimentRow]) -> list[ExperimentRow]:
    """The experiments. Raises ValueError for a damaged one."""
    for row in rows:
        if row.damage is not None:
            raise ValueError(row.damage)
    return rows


def _digest_row(digest: Digest) -> dict[str, Any]:
    from pgpaces.store import digests

    return {"digest": digests.text(digest), "digest_version": digests.VERSION}


def _beat(connection: Connection, trial_id: str) -> None:
    connection.update(schema.trial, {"heartbeat": datetime.now(UTC)}, "id = ?", trial_id)
