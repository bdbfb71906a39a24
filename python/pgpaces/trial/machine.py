"""The trials of one machine in sequence: opens and reuses servers, repeats failed trials."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.sequential import Tell
from pgpaces.core.errors import (
    ConnectionsError,
    ConsentError,
    PgpacesError,
    PlanError,
    PrepareError,
    RunError,
    ScriptError,
    ServerError,
    StoreError,
    WorkloadError,
)
from pgpaces.core.messages import message
from pgpaces.core.texts import Say, Warned
from pgpaces.database import settings
from pgpaces.load.cluster.workers import Clusters
from pgpaces.spec.design import Ask
from pgpaces.spec.setup import ServerFacts
from pgpaces.spec.target import TargetPlan
from pgpaces.store.store import Store
from pgpaces.trial.listener import Progress, SweepListener
from pgpaces.trial.request import Request
from pgpaces.trial.strategies import Listed, Strategy
from pgpaces.trial.target_server import Site, site
from pgpaces.trial.trial import Outcome, TrialContext, run_at

ATTEMPTS = 2
# Errors of the request itself; another attempt fails the same way.
_PERMANENT = (PlanError, ConsentError, WorkloadError, ScriptError)
# Errors of a cell: it fails the same way when the experiment is resumed.
LASTING = (PlanError, WorkloadError, ScriptError, ConnectionsError)
# Errors by a server that answers: another cell may fit.
_ANSWERED = (ConnectionsError, ConsentError, PrepareError)
# A server counts as away after this number of trials in a row that could not reach it.
AWAY_AFTER = 3
# Wait for a server that earlier trials reached and that is away now: it may be restarting.
BACK_S = 120.0
_LOOK_S = 1.0


class Machine(Struct):
    """One machine and the trials to run on it.

    Which trial is next follows from the results so far. request: makes the request of an ask.
    results: of this machine, in their order. expected: facts of each server as it was for its first
    trial. errors: of the trials that could not be run.
    """

    name: str
    strategy: Strategy
    request: Callable[[Ask], Request]
    progress: Progress
    results: list[Tell] = field(default_factory=list)
    expected: dict[TargetPlan, ServerFacts] = field(default_factory=dict)
    errors: list[PgpacesError] = field(default_factory=list)
    _away: dict[object, int] = field(default_factory=dict)
    _reached: set[TargetPlan] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.progress.left[self.name] = self.left

    @property
    def left(self) -> int:
        return self.strategy.left(self.results)

    def run(self, context: TrialContext) -> None:
        try:
            with contextlib.closing(_Sites()) as sites, contextlib.closing(Clusters()) as clusters:
                own = replace(context, clusters=clusters)
                while not own.stops.requests and (ask := self.strategy.ask(self.results)):
                    self._trial(ask, sites, own)
        except BaseException:
            if not context.stops.requests:  # the other machines complete their trials
                context.stops.ask()
            raise

    def _trial(self, ask: Ask, sites: _Sites, context: TrialContext) -> None:
        """Runs one trial, twice if it fails. Raises StoreError if it cannot be stored."""
        listener, stops, request = context.listener, context.stops, self.request(ask)
        assert isinstance(listener, SweepListener)
        key = _server(request)
        if self._away.get(key, 0) >= AWAY_AFTER:
            self.errors.append(ServerError("server-away", trials=AWAY_AFTER))
            self._ended(ask, self.errors[-1], context.store)
            self.progress.ended(self.name, None, self.left, well=False)
            return
        if ask.why:
            listener.due(self.name, ask)
        started = time.monotonic()
        well, killed = False, None
        outcome: Outcome | PgpacesError = RunError("trial-incomplete")
        for attempt in range(1, ATTEMPTS + 1):
            own = replace(
                context, listener=listener.trial(self.name, ask, attempt, progress=self.progress)
            )
            if isinstance(outcome, ServerError):
                self._await(request, sites, own)
            outcome = self._attempt(request, attempt, sites, context=own)
            listener.done(self.name, ask, outcome)
            well = isinstance(outcome, Outcome) and outcome.trial.state == "finished"
            well = well and not _lost(outcome)
            # Another attempt would fail the same way, or alarm the guard again.
            killed = outcome.killed if isinstance(outcome, Outcome) else None
            if well or stops.requests or killed or isinstance(outcome, _PERMANENT):
                break
        if (lost := _lost(outcome)) is not None:
            raise lost
        if stops.requests and not well:
            return
        if not well:
            error = outcome.error if isinstance(outcome, Outcome) else outcome
            if error is None and killed:
                error = RunError("trial-killed", why=str(killed))
            self.errors.append(error or RunError("trial-incomplete"))
        self._ended(ask, outcome, context.store)
        self.progress.ended(self.name, time.monotonic() - started, self.left, well=well)
        self._count_away(key, outcome, listener)

    def _ended(self, ask: Ask, outcome: Outcome | PgpacesError, store: Store | None) -> None:
        tell = Tell(ask.cell, ask.block, None, attempt=ask.attempt)
        if isinstance(outcome, PgpacesError):
            too_much = isinstance(outcome, ConnectionsError)
            tell = replace(tell, error=outcome.message, too_much=too_much)
        elif store and not isinstance(self.strategy, Listed):  # all digests of one need much memory
            tell = Tell.of(store.digests([outcome.trial.id])[0])
        self.results.append(tell)

    def _count_away(
        self, key: object, outcome: Outcome | PgpacesError, listener: SweepListener
    ) -> None:
        if not isinstance(outcome, ServerError) or isinstance(outcome, _ANSWERED):
            self._away[key] = 0
            return
        self._away[key] = self._away.get(key, 0) + 1
        if self._away[key] == AWAY_AFTER:
            listener.away(self.name, outcome, self.progress.left[self.name])

    def _attempt(
        self, request: Request, attempt: int, sites: _Sites, *, context: TrialContext
    ) -> Outcome | PgpacesError:
        place = request.place
        assert place is not None
        # A trial that is run again later continues its count of attempts.
        place, key = replace(place, attempt=place.attempt + attempt - 1), request.target
        request = replace(request, place=place, expected=self.expected.get(key))
        store, listener = context.store, context.listener
        assert store is not None
        try:
            # No load without a store that takes its results.
            context.write(lambda: store.beat_experiment(place.experiment))
            where = sites.open(request, context)
            self._reached.add(key)
            outcome = run_at(where, request, context)
        except StoreError as error:
            return error
        except PgpacesError as error:
            sites.abandon(listener.say)
            if not context.stops.requests:
                note = partial(store.note_failure, place.experiment, place.cell, place.block)
                message = error.message
                context.write(lambda: note(attempt=place.attempt, error=message))
            return error
        if outcome.error is not None:
            sites.abandon(listener.say)
        self.expected.setdefault(key, outcome.trial.server)
        return outcome

    def _await(self, request: Request, sites: _Sites, context: TrialContext) -> None:
        target, stops = request.target, context.stops
        if target.dsn is None or target not in self._reached or self._away.get(_server(request), 0):
            return
        deadline, announced = time.monotonic() + BACK_S, False
        while not stops.requests and time.monotonic() < deadline:
            try:
                sites.open(request, context)
                return
            except ServerError as error:
                if not announced:
                    context.listener.say(message("server-awaited", error=error.message))
                announced = True
            stops.rest(_LOOK_S)


def _server(request: Request) -> object:
    """What is away if trials do not reach it: of a managed server, with these settings."""
    target = request.target
    return target if target.dsn is not None else (target, request.trial.settings)


def _lost(outcome: Outcome | PgpacesError) -> StoreError | None:
    if isinstance(outcome, Outcome):
        return outcome.store_error
    return outcome if isinstance(outcome, StoreError) else None


class _Sites:
    """The running server: the last trial's, reused if the next trial needs the same one.

    One at a time on a machine, so that no other server competes for memory and CPU.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._target: TargetPlan | None = None
        self._site: Site | None = None
        self._contexts: dict[TargetPlan, dict[str, str]] = {}

    def open(self, request: Request, context: TrialContext) -> Site:
        """The server of a trial. A managed one is started with the settings that need a start.

        Raises ServerError, and PlanError for unknown settings.
        """
        target, say = request.target, context.listener.say
        if target.dsn is not None:
            return self._open(target, say)
        options = dict(request.trial.settings)
        contexts = self._contexts.setdefault(target, {})
        if unknown := {name: value for name, value in options.items() if name not in contexts}:
            where = self._open(target, say)
            of_server = settings.server_contexts(where.access, unknown)
            contexts |= {name: of_server.get(name, "") for name in unknown}
        at_start = tuple((n, v) for n, v in options.items() if contexts[n] == "postmaster")
        return self._open(replace(target, server_settings=at_start), say)

    def _open(self, target: TargetPlan, say: Say) -> Site:
        if self._site is not None and self._target == target:
            return self._site
        self.close()
        self._site = self._stack.enter_context(site(target, say))
        self._target = target
        return self._site

    def abandon(self, say: Say) -> None:
        """Stops it after a failed trial; the next trial gets a fresh server."""
        try:
            self.close()
        except PgpacesError as error:
            say(Warned(error.message))

    def close(self) -> None:
        self._site = self._target = None
        self._stack.close()
