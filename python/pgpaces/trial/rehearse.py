"""Rehearses a migration or an event in passes, each on its own copy under load.

The passes are the migration as it is, behind an open transaction, and in a safer form. Each pass is
a trial of the load, during which the migration runs. An experiment groups them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import psycopg
from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.rehearsal import Evidence, by_commands, judge
from pgpaces.core import sessions
from pgpaces.core.errors import PgpacesError, PlanError, TrustError
from pgpaces.core.findings import finding
from pgpaces.core.messages import message
from pgpaces.core.record import Interval
from pgpaces.core.texts import Warned
from pgpaces.core.units import digits, duration_ns
from pgpaces.database import migration, ownership
from pgpaces.database.access import (
    MAINTENANCE,
    Access,
    connect,
    is_dsn,
    keywords_of,
    source_name,
)
from pgpaces.database.migration import Migrating
from pgpaces.load import engine as generator
from pgpaces.load.cluster.workers import Clusters
from pgpaces.load.composite import Together
from pgpaces.load.engine import for_driver
from pgpaces.monitor import locks, plans
from pgpaces.monitor.locks import LockSampler
from pgpaces.monitor.sizes import View
from pgpaces.spec import trust
from pgpaces.spec.design import Experiment
from pgpaces.spec.load import limit_ns
from pgpaces.spec.migration import (
    Behind,
    Form,
    Keys,
    Pass,
    Rehearsal,
    Statement,
    StatementRun,
    Verdict,
    fingerprint,
    read,
    split,
)
from pgpaces.spec.result import Place
from pgpaces.spec.safer import safer
from pgpaces.spec.spec import Spec
from pgpaces.spec.trust import Consent
from pgpaces.spec.workload import Workload
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.rows import ExperimentState
from pgpaces.store.store import Store, new_id
from pgpaces.trial import document
from pgpaces.trial.events import EVENTS, Program, ServerEvent
from pgpaces.trial.listener import Listener
from pgpaces.trial.prepare import ReadyTrial
from pgpaces.trial.request import PRIMARY, Request, check, request_of
from pgpaces.trial.target_server import Site, site, source_database
from pgpaces.trial.trial import Companion, Stops, TrialContext, run_at

# Of each pass: its warm-up, and its length without the migration, at most. The default limit.
_WARMUP, _AROUND_S, _LIMIT = "2s", 120, "100ms"
# The part before the migration has so many requests, within these seconds; the part after it.
_BEFORE_DUE, BEFORE_MIN_S, _BEFORE_MAX_S, AFTER_S = 200, 5.0, 30.0, 5.0
# The open transaction begins so much earlier than the migration.
_HELD_BEFORE_S, _LOOK_S = 0.2, 0.05
# What is said of each pass.
_PASSES: Mapping[tuple[Form, Behind], str] = {
    ("asked", "alone"): "rehearsal-asked-alone",
    ("asked", "open"): "rehearsal-asked-open",
    ("asked", "autovacuum"): "rehearsal-asked-autovacuum",
    ("safer", "alone"): "rehearsal-safer-alone",
    ("safer", "open"): "rehearsal-safer-open",
    ("safer", "autovacuum"): "rehearsal-safer-autovacuum",
}
# A pass whose verdict is in doubt (analysis/rehearsal.py) is repeated until it has run so often.
_PASSES_MAX = 3
# An autovacuum is awaited so long.
_AUTOVACUUM_S = 120
# A safer form waits for its locks half the latency limit at a time, so often.
_SAFER_TRIES = 30
_SETS = "VariableSetStmt"


class Terms(Struct, frozen=True, kw_only=True):
    """What to rehearse besides files, and how; options.toml explains each."""

    event: str | None = None
    program: str | None = None
    open_transaction: str = "3s"
    autovacuum: bool = False
    single_transaction: bool = False
    lock_timeout: str | None = None
    retries: int = 0
    timeout: str = "10min"
    safer: bool = True
    production_rows: Sequence[str] = ()


class RehearsalRequest(Struct, frozen=True):
    """A migration to rehearse. load: the trial that each pass is.

    Instead of statements it may have an event of a managed server, or a program that migrates.
    open_s: how long the open transaction stays open; 0: no such pass. tries: of a statement that
    its lock_timeout ends. find_safer: rehearse a safer form if the migration is not safe. rows: of
    production's tables.
    """

    load: Request
    name: str
    text: str
    statements: tuple[Statement, ...]
    open_s: float = 3.0
    autovacuum: bool = False
    event: str = ""
    program: str = ""
    tries: int = 1
    timeout_s: float = 600.0
    find_safer: bool = True
    rows: Mapping[str, int] = field(default_factory=dict)
    command: str = ""


def ask(
    typed: Spec,
    base: Workload,
    terms: Terms,
    *,
    files: Sequence[str] = (),
    consent: Consent,
    command: str = "",
    **more: Any,
) -> RehearsalRequest:
    """The rehearsal of files, of an event, or of a program, under the load of a spec.

    more: other fields of the load's request. Raises PlanError, TrustError.
    """
    event, program = terms.event or "", terms.program or ""
    given = [word for word, value in (("--event", event), ("--run", program)) if value]
    if len(given) + bool(files) > 1:
        raise PlanError("cannot-combine", options=[*given, *files[:1]])
    if not files and not given:
        raise PlanError("migration-missing")
    text, statements = read(files) if files else (event or program, ())
    if event == "checkpoint":
        statements = tuple(split(event))
    elif event and event not in EVENTS:
        program = event
    if program:
        _confirm(program, consent)
    statements = _as_asked(statements, terms)
    timeout_s = duration_ns(terms.timeout, "--timeout") / 1e9
    open_s = duration_ns(terms.open_transaction, "--open-transaction", zero=True) / 1e9
    spec = {**typed, "duration": f"{timeout_s + open_s + _AROUND_S:g}s", "warmup": _WARMUP}
    if not any(name.partition(".")[0] == "latency_limit" for name in (*typed, *base.load)):
        spec["latency_limit"] = _LIMIT
    source = spec.get("from_database")
    if source and is_dsn(source) and "target" not in spec and "server" not in spec:
        # A managed server of the same major version as the source, which is only read.
        with connect(Access(keywords_of(source), Path("psql"))) as session:
            spec["server"] = str(session.info.server_version // 10_000)
    if terms.autovacuum and "target" not in spec:
        spec.setdefault("server_set.autovacuum_naptime", "1s")
    return RehearsalRequest(
        load=request_of(spec, base, consent=consent, **more),
        name=Path(files[0]).name if files else text,
        text=text,
        statements=statements,
        event=event if event in EVENTS else "",
        program=program,
        # An event has no lock to wait for.
        open_s=0.0 if event else open_s,
        autovacuum=terms.autovacuum and not event,
        tries=1 + terms.retries,
        timeout_s=timeout_s,
        find_safer=terms.safer and bool(files),
        rows=dict(map(_table_rows, terms.production_rows)),
        command=command,
    )


def _table_rows(text: str) -> tuple[str, int]:
    table, _, rows = text.rpartition("=")
    if not table or (count := digits(rows.replace(",", "").replace("_", ""))) is None:
        raise PlanError("not-table-rows", value=text)
    return table, count


def _confirm(program: str, consent: Consent) -> None:
    action = trust.Action(message("runs-command"), "--run", program)
    if not consent(trust.Question(Path.cwd(), (action,))):
        raise TrustError("command-unconfirmed", command=program)


def _as_asked(statements: tuple[Statement, ...], terms: Terms) -> tuple[Statement, ...]:
    """The statements with what options add to them."""
    single, retries = terms.single_transaction, terms.retries
    kinds = [each.kind for each in statements if each.kind in ("begin", "end")]
    if kinds[-1:] == ["begin"]:
        raise PlanError("migration-left-open")
    if single and (retries or kinds):
        other = "--retries" if retries else "BEGIN"
        raise PlanError("cannot-combine", options=["--single-transaction", other])
    if single:
        statements = (Statement("BEGIN", "begin"), *statements, Statement("COMMIT", "end"))
    if terms.lock_timeout:
        ms = max(1, duration_ns(terms.lock_timeout, "--lock-timeout") // 1_000_000)
        statements = (Statement(f"SET lock_timeout = '{ms}ms'"), *statements)
    return statements


def check_rehearsal(asked: RehearsalRequest) -> None:
    """Raises PlanError for a load without a limit or pace, and for a database that is no copy."""
    check(asked.load)
    trial, workload = asked.load.trial, asked.load.workload
    if trial.load.model == "closed":
        raise PlanError("rehearsal-needs-rate")
    if not limit_ns(asked.load.trial):
        raise PlanError("no-latency-limit")
    if asked.event == "failover" and not asked.load.target.standbys:
        raise PlanError("option-needs", option="--event failover", needed="--standbys 1")
    if asked.event and asked.load.target.dsn is not None:
        raise PlanError("event-needs-managed", event=asked.event)
    if asked.load.target.own is not None:
        raise PlanError("cannot-combine", options=["rehearse", "--own"])
    if asked.load.from_database is None and (workload.alone or not workload.init):
        raise PlanError("rehearsal-needs-copy")


def rehearse(asked: RehearsalRequest, listener: Listener | None = None) -> Rehearsal:
    """Rehearses it. Raises PgpacesError if a pass cannot begin."""
    check_rehearsal(asked)
    listener, stops = listener or Listener(), Stops()
    load = replace(asked.load, from_database=source_database(asked.load.from_database))
    # The migration writes, so each pass has a copy of its own.
    workload, trial = replace(load.workload, writes=True), replace(load.trial, traced=True)
    once = load.from_database is not None
    load = replace(load, workload=workload, trial=trial, temporary=once)
    asked = replace(asked, load=load)
    with ExitStack() as stack:
        store = Store.open(load.store)
        stack.callback(store.close)
        rehearsal = Rehearsal(
            id=new_id(),
            name=asked.name,
            sha256=hashlib.sha256(asked.text.encode()).hexdigest(),
            open_s=asked.open_s,
            autovacuum=asked.autovacuum,
            separated=any(each.kind == "begin" for each in asked.statements),
            rows=asked.rows,
            source=source_name(load.from_database or load.workload.name),
        )
        state: ExperimentState = "interrupted"
        clusters = stack.enter_context(closing(Clusters()))
        where = stack.enter_context(site(load.target, listener.say))
        _begin(store, asked, rehearsal)
        context = TrialContext(listener, stops, store, clusters=clusters)
        passes = _Passes(asked, rehearsal, where, context=context, stack=stack)
        try:
            rehearsal = passes.run()
            state = "interrupted" if stops.requests else "finished"
        finally:
            store.finish_experiment(rehearsal.id, state)
            if load.from_database is not None:
                passes.drop_copy()
        return rehearsal


def _begin(store: Store, asked: RehearsalRequest, rehearsal: Rehearsal) -> None:
    from importlib.metadata import version

    experiment = Experiment(asked.name, asked.load.workload.name)
    hash_ = asked.load.workload.hash
    store.begin_experiment(
        ExperimentRow(
            id=rehearsal.id,
            name=asked.name,
            started_at=datetime.now(UTC),
            ended_at=None,
            state="running",
            version=version("pgpaces"),
            document=document.write(experiment, asked.command, hash_, goal=rehearsal),
        )
    )


class _Passes:
    """The passes of a rehearsal, one after the other."""

    def __init__(
        self,
        asked: RehearsalRequest,
        rehearsal: Rehearsal,
        where: Site,
        *,
        context: TrialContext,
        stack: ExitStack,
    ) -> None:
        self._asked, self._rehearsal = asked, rehearsal
        self._where, self._context, self._stack = where, context, stack
        self._copy, self._number = "", 0
        self._keys: Keys = {}

    def drop_copy(self) -> None:
        """Drops the copy of the source of which each pass had a copy."""
        if not self._copy:
            return
        with (
            contextlib.suppress(psycopg.Error, PgpacesError),
            connect(self._where.access, MAINTENANCE) as admin,
        ):
            admin.execute(ownership.forced_drop(admin, self._copy, if_exists=True))

    def run(self) -> Rehearsal:
        """The migration as it is, alone and with others in its way; then a safer form."""
        rehearsal, asked = self._rehearsal, self._asked
        found = self._each("asked", asked.statements, "", until=("unknown",))
        by_behind = {each.behind: each for each in found}
        harms = {each.verdict for each in found} - {"safe"}
        if asked.find_safer and harms and "unknown" not in harms and not self._stopping:
            behind = by_behind.get("autovacuum")
            sql = safer(
                asked.statements,
                limit_ns(asked.load.trial),
                runs=by_behind["alone"].statements,
                keys=self._keys,
                before_autovacuum=behind is not None and behind.verdict == "blocks",
            )
            # A lock_timeout alone helps against waiting, and nothing else.
            texts = [each.text for each in split(sql or "SELECT") if each.name != _SETS]
            same = texts == [each.text for each in asked.statements]
            if sql and not (same and by_behind["alone"].verdict != "safe"):
                others = tuple(verdict for verdict in get_args(Verdict) if verdict != "safe")
                found += self._each("safer", tuple(split(sql)), sql, until=others)
        return replace(rehearsal.with_passes(found), interrupted=self._stopping)

    @property
    def _stopping(self) -> bool:
        return bool(self._context.stops.requests)

    def _each(
        self, form: Form, statements: Sequence[Statement], sql: str, *, until: Sequence[Verdict]
    ) -> list[Pass]:
        """The passes of a form until one has one of these verdicts; what was found before stays."""
        found: list[Pass] = []
        for behind in self._rehearsal.behinds:
            try:
                for _ in range(_PASSES_MAX):
                    one = self._pass(statements, form, behind, sql=sql)
                    if not one.in_doubt or self._stopping:
                        break
            except PgpacesError as error:
                if form == "asked":
                    raise
                self._context.listener.say(Warned(error.message))
                return found
            found.append(one)
            if one.verdict in until or self._stopping:
                break
        return found

    def _pass(
        self, statements: Sequence[Statement], form: Form, behind: Behind, *, sql: str
    ) -> Pass:
        asked, context = self._asked, self._context
        context.listener.say(message(_PASSES[form, behind]))
        if form == "safer":
            asked = replace(asked, tries=_SAFER_TRIES, text=sql)
        during = DuringLoad(
            statements, asked, form=form, behind=behind, stack=self._stack, context=context
        )
        self._number += 1
        place = Place(self._rehearsal.id, f"{self._number}", {}, self._number)
        with ExitStack() as own:
            outcome = run_at(
                self._where,
                replace(asked.load, place=place),
                replace(context, companion=during, resources=own),
            )
        self._copy, self._keys = during.copied, during.keys
        if error := outcome.error or outcome.store_error:
            raise error
        assert outcome.trial.rehearsed is not None
        return outcome.trial.rehearsed


# What is rehearsed. at: the number of the statement that runs. known: it knows its locks; else
# samples show them. pids: its sessions; None: all that are not pgpaces'. whole: it came to its end.
Action = Migrating | Program | ServerEvent


class DuringLoad(Companion):
    """One execution of a migration, or an event, during a load."""

    def __init__(
        self,
        statements: Sequence[Statement],
        asked: RehearsalRequest,
        *,
        form: Form,
        behind: Behind,
        stack: ExitStack,
        context: TrialContext,
    ) -> None:
        self.copied, self.keys = "", dict[str, tuple[str, str]]()
        self._statements, self._asked, self._stops = statements, asked, context.stops
        self._say = context.listener.say
        self._stack, self._sessions = stack, ExitStack()
        self._form, self._behind = form, behind
        self._intervals: list[Interval] = []
        self._runs: list[StatementRun] = []
        self._start_ns = self._began_ns = self._ended_ns = 0
        self._wal: list[tuple[int, int]] = []
        self._tables: list[str] = []
        self._others = frozenset[str]()
        self._whole, self._why = False, ""
        self._pressure: float | None = None
        self._covered: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pgpaces-migration", daemon=True)

    def open(self, ready: ReadyTrial) -> ReadyTrial:
        if ready.prepared.cloned_from is None:
            raise PlanError("rehearsal-needs-copy")
        self.copied = ready.prepared.cloned_from
        self._ready, self._keywords = ready, for_driver(ready.primary())
        self._period_ns = locks.period_ns(limit_ns(ready.request.trial))
        with sessions.errors("admin-session-failed"):
            self._admin = sessions.connect(self._keywords, "pgpaces sensor", prepare_threshold=None)
            self._sessions.callback(self._admin.close)
            self.keys = migration.keys_of(self._admin)
            texts = self._load_texts()
            self._locks = self._load_locks(texts)
            if (self._form, self._behind) == ("asked", "alone"):
                self._covered = covered(self._asked.load.from_database, texts)
            self._action, ready = self._acts(ready)
            self._sessions.callback(self._action.close)
            self._sampler = LockSampler(
                self._keywords,
                period_ns=self._period_ns,
                now_ns=self._now_ns,
                statement=lambda: self._action.at,
                pids=self._action.pids,
                application=self._keywords.get("application_name", ""),
            )
            self._sessions.callback(self._sampler.stop)
        return ready

    def _acts(self, ready: ReadyTrial) -> tuple[Action, ReadyTrial]:
        asked = self._asked
        if asked.event in EVENTS:
            event = ServerEvent(asked.event, ready, self._now_ns, stack=self._stack)
            return event, event.ready
        if asked.program:
            command, timeout_s = asked.program, asked.timeout_s
            program = Program(command, ready, self._now_ns, timeout_s=timeout_s, say=self._say)
            return program, ready
        found = Migrating(
            self._keywords,
            self._now_ns,
            self._statements,
            tries=asked.tries,
            timeout_s=asked.timeout_s,
        )
        return found, ready

    def begin(self, start_ns: int, load: Together) -> None:
        self._start_ns, self._load = start_ns, load
        self._thread.start()

    def add(self, interval: Interval) -> None:
        self._intervals.append(interval)
        if self._stops.requests:  # nothing of the migration goes on
            self._stopped.set()
            self._action.stop()

    def end(self) -> Pass | None:
        """The pass. None if the load did not begin."""
        self._stopped.set()
        if self._start_ns == 0:
            return None
        if not self._ended_ns:
            self._action.stop()
        self._thread.join()
        schema = ""
        with contextlib.suppress(psycopg.Error):
            schema = migration.schema_of(self._admin)
        self._action.close()
        sql = self._asked.text if self._form == "safer" else ""
        found = replace(judge(self._evidence()), schema=schema, sql=sql, covered=self._covered)
        if self._why:
            stopped = finding("rehearsal-stopped", why=self._why)
            found = replace(found, verdict="unknown", findings=(stopped, *found.findings))
        return found

    def close(self) -> None:
        self._sessions.close()

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._start_ns

    def _load_texts(self) -> list[list[str]]:
        """The statements of each script, without those that begin and end transactions."""
        found: list[list[str]] = []
        for component in self._ready.components:
            variables = tuple(component.work.variables().items())
            for script in component.scripts:
                with contextlib.suppress(PgpacesError):  # its clients give up, too
                    statements = generator.rehearse(
                        script.name, script.text, variables, seed=component.plan.seed
                    )
                    texts = [sql for _, sql in statements if plans.kind_of(sql) != "transaction"]
                    found.append(texts)
        return found

    def _load_locks(self, scripts: Sequence[Sequence[str]]) -> dict[str, frozenset[str]]:
        """What each relation is locked with by the scripts; each statement is executed once."""
        found: dict[str, set[str]] = {}
        for texts in scripts:
            for relation, mode in migration.locks_of(self._admin, texts):
                found.setdefault(relation, set()).add(mode)
        return {relation: frozenset(modes) for relation, modes in found.items()}

    def _all_locks(self) -> dict[str, frozenset[str]]:
        """These, and those that samples saw the load's sessions hold before the migration."""
        seen = self._sampler.of_load()
        every = {*self._locks, *seen}
        none: frozenset[str] = frozenset()
        return {name: self._locks.get(name, none) | seen.get(name, none) for name in every}

    def _work(self) -> None:
        """The migration between its parts before and after, in a thread of its own."""
        try:
            self._sampler.begin()
            if isinstance(self._action, ServerEvent):
                self._action.begin()
            self._read_wal()
            if self._rest(self._before_s()):
                return
            self._read_wal()
            self._sampler.migrates()
            used = self._all_locks()
            every = migration.every_table(self._admin)
            self._tables = [name for name in every if name in used]
            self._others = frozenset(every) - used.keys()
            self._migrate()
        except psycopg.Error as error:
            self._why = str(error).strip() or type(error).__name__
        finally:
            self._sampler.stop()
            self._load.stop()

    def _migrate(self) -> None:
        """The migration with what is in its way, and the part after it."""
        with ExitStack() as stack:
            timer = None
            if self._behind == "autovacuum" and not self._autovacuum():
                self._why = message("rehearsal-no-autovacuum", wait_s=_AUTOVACUUM_S)
                return
            if self._behind == "open":
                held = migration.holding(self._keywords, self._tables, self._asked.open_s)
                timer = stack.enter_context(held)
                if self._rest(_HELD_BEFORE_S):
                    return
            self._began_ns, stalled_ns = self._now_ns(), _stalled_ns()
            self._say(message("rehearsal-migrates"))
            self._runs = self._action.run()
            self._ended_ns = self._now_ns()
            if stalled_ns is not None:
                spent_ns = max(1, self._ended_ns - self._began_ns)
                self._pressure = ((_stalled_ns() or 0) - stalled_ns) / spent_ns
            self._read_wal()
            while timer is not None and timer.is_alive():
                if self._rest(_LOOK_S):
                    break
            self._whole = self._action.whole and not self._rest(AFTER_S)
            if self._action.timed_out:
                self._why = message("rehearsal-timed-out", timeout_s=self._asked.timeout_s)

    def _autovacuum(self) -> bool:
        """Waits until an autovacuum works on a table of the load, and says whether one does."""
        migration.hurry_autovacuum(self._admin, self._tables)
        deadline = time.monotonic() + _AUTOVACUUM_S
        while not (found := migration.in_autovacuum(self._admin, self._tables)):
            if time.monotonic() > deadline or self._rest(_LOOK_S):
                break
        return found

    def _rest(self, seconds: float) -> bool:
        """Waits; whether the end was requested meanwhile."""
        return self._stopped.wait(seconds)

    def _before_s(self) -> float:
        rate = self._ready.request.trial.load.rate or 1.0
        before_s = min(max(_BEFORE_DUE / rate, BEFORE_MIN_S), _BEFORE_MAX_S)
        # It begins in the middle of a second, so that the parts have whole seconds.
        return max(0.0, -self._now_ns() / 1e9) + before_s + 0.1

    def _read_wal(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._wal.append((self._now_ns(), migration.wal_position(self._admin)))

    def _wal_bytes(self) -> int | None:
        """What was written during the migration, without as much as the load wrote before it."""
        if len(self._wal) < 3:
            return None
        (at0, first), (at1, second), (at2, third) = self._wal
        usual = (second - first) / max(1, at1 - at0) * (at2 - at1)
        return max(0, round(third - second - usual))

    def _evidence(self) -> Evidence:
        ready = self._ready
        scripts, nodes, limits_ns = list[str](), list[str](), list[int]()
        for component in ready.components:
            own = dict(component.plan.limits)
            for script, label in zip(component.scripts, component.labels, strict=True):
                scripts.append(label)
                nodes.append("" if component.node == PRIMARY else component.node)
                limits_ns.append(own.get(script.name, component.plan.limit_ns) or 0)
        missed_max = ready.request.spec.get("missed")
        looks, runs = self._sampler.looks, self._runs
        if not self._action.known and runs:
            looks, runs = by_commands(looks, runs)
        return Evidence(
            form=self._form,
            behind=self._behind,
            statements=runs,
            looks=looks,
            intervals=self._intervals,
            locks=self._all_locks(),
            tables=frozenset(self._tables),
            others=self._others,
            scripts=scripts,
            nodes=nodes,
            limits_ns=limits_ns,
            allowed=missed_max if isinstance(missed_max, float) else 0.05,
            clients=sum(component.clients for component in ready.components),
            known=self._action.known,
            period_ns=self._period_ns,
            began_ns=self._began_ns,
            ended_ns=self._ended_ns,
            pressure=self._pressure,
            wal_bytes=self._wal_bytes(),
            outage=self._action.outage,
            interrupted=not self._whole and not self._why,
        )


def _stalled_ns() -> int | None:
    """How long tasks of this machine have waited for a CPU since its start; None: unknown."""
    with contextlib.suppress(OSError):
        text = Path("/proc/pressure/cpu").read_text("ascii")
        if match := re.search(r"^some .* total=(\d+)", text, re.MULTILINE):
            return int(match[1]) * 1000
    return None


def covered(source: str | None, scripts: Sequence[Sequence[str]]) -> float | None:
    """The share of a source's calls whose statements scripts have too.

    None if the source is no DSN, or its pg_stat_statements cannot be read.
    """
    if source is None or not is_dsn(source):
        return None
    with (
        contextlib.suppress(psycopg.Error, PgpacesError),
        connect(Access(keywords_of(source), Path("psql"))) as session,
    ):
        view = View.of(session)
        calls = {} if view is None else view.calls(session)
        own = {fingerprint(text) for texts in scripts for text in texts} - {None}
        shared = sum(count for text, count in calls.items() if fingerprint(text) in own)
        return shared / sum(calls.values()) if calls else None
    return None
