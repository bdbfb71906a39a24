"""The trials of one machine, one after the other: servers opened and kept, failures tried again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.database import settings
from pgpaces.errors import (
    ConnectionsError,
    ConsentError,
    PgpacesError,
    PlanError,
    RunError,
    ScriptError,
    ServerError,
    StoreError,
    WorkloadError,
)
from pgpaces.experiment.listener import Progress, SweepListener
from pgpaces.experiment.queue import Due, Queue
from pgpaces.experiment.request import Request
from pgpaces.experiment.site import Say, Site, site
from pgpaces.experiment.stops import kept
from pgpaces.experiment.trial import Keeping, Outcome, run_at
from pgpaces.facts import ServerFacts
from pgpaces.plan import TargetPlan

ATTEMPTS = 2
# What is asked for cannot be; asking again changes nothing.
_HOPELESS = (PlanError, ConsentError, WorkloadError, ScriptError)
# So many trials in a row that could not reach their server: it is away.
AWAY_AFTER = 3
# A server that let trials in is waited for so long where it is not there: it may be restarting.
BACK_S = 120.0
_LOOK_S = 1.0


class Machine(Struct):
    """One machine and what is to be run on it.

    expected: facts of each server as it was for its first trial. broken: what nobody foresaw.
    """

    name: str
    queue: Queue
    progress: Progress
    expected: dict[TargetPlan, ServerFacts] = field(default_factory=dict)
    broken: BaseException | None = None
    _away: dict[object, int] = field(default_factory=dict)
    _reached: set[TargetPlan] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.progress.left[self.name] = self.queue.left

    def run(self, keeping: Keeping) -> None:
        """Every trial, until somebody asks for the end."""
        try:
            with contextlib.closing(_Sites()) as sites:
                while not keeping.stops.asked and (due := self.queue.next()) is not None:
                    self._trial(due, sites, keeping)
        except BaseException as error:
            self.broken = error
            if not keeping.stops.asked:  # the others end their trials, and are not cut short
                keeping.stops.ask()

    def _trial(self, due: Due, sites: _Sites, keeping: Keeping) -> None:
        """One trial, and once more if it fails. Raises StoreError where it cannot be kept."""
        listener, stops = keeping.listener, keeping.stops
        assert isinstance(listener, SweepListener)
        slot, request = due.slot, due.request
        key = request.target
        if self._away.get(key, 0) >= AWAY_AFTER:
            self.queue.ended(due, ServerError("the server is away"))
            self.progress.left_out(self.name, self.queue.left)
            return
        if due.why:
            listener.due(self.name, slot, due.why)
        started = time.monotonic()
        well = False
        found: Outcome | PgpacesError = RunError("it was not tried")
        for attempt in range(1, ATTEMPTS + 1):
            ear = listener.trial(self.name, slot, attempt, self.progress)
            if isinstance(found, ServerError):
                self._await(request, sites, replace(keeping, listener=ear))
            found = self._attempt(request, attempt, sites, replace(keeping, listener=ear))
            listener.done(self.name, slot, found)
            well = isinstance(found, Outcome) and found.trial.state == "finished"
            well = well and not _lost(found)
            if well or stops.asked or _hopeless(found):
                break
        if (lost := _lost(found)) is not None:
            raise lost
        if stops.asked and not well:
            return
        self.queue.ended(due, found)
        self.progress.ended(self.name, time.monotonic() - started, self.queue.left, well=well)
        self._count_away(key, found, listener)

    def _attempt(
        self, request: Request, attempt: int, sites: _Sites, keeping: Keeping
    ) -> Outcome | PgpacesError:
        place = request.place
        assert place is not None
        # Of one that is run again behind others the attempts are counted on.
        place, key = replace(place, attempt=place.attempt + attempt - 1), request.target
        asked = replace(request, place=place)
        store, listener = keeping.store, keeping.listener
        assert store is not None
        try:
            # No load goes to a server for nothing.
            self._keep(lambda: store.beat_experiment(place.experiment), keeping)
            where = sites.open(asked, keeping)
            self._reached.add(key)
            found = run_at(where, replace(asked, expected=self.expected.get(key)), keeping)
        except StoreError as error:
            return error
        except PgpacesError as error:
            sites.abandon(listener.say)
            if not keeping.stops.asked:
                note = (place.experiment, place.cell, place.block, place.attempt, error.message)
                self._keep(lambda: store.note_failure(*note), keeping)
            return error
        if found.error is not None:
            sites.abandon(listener.say)
        self.expected.setdefault(key, found.trial.server)
        return found

    def _keep(self, write: Callable[[], None], keeping: Keeping) -> None:
        kept(write, keeping.stops, keeping.listener.say, keeping.wait_s)

    def _await(self, request: Request, sites: _Sites, keeping: Keeping) -> None:
        """Waits for an external server that was there before."""
        target, stops = request.target, keeping.stops
        if target.dsn is None or target not in self._reached or self._away.get(target, 0):
            return
        deadline, told = time.monotonic() + BACK_S, False
        while not stops.asked and time.monotonic() < deadline:
            try:
                sites.open(request, keeping)
                return
            except ServerError as error:
                if not told:
                    keeping.listener.say(f"waiting for the server: {error.message}")
                told = True
            stops.rest(_LOOK_S)

    def _count_away(
        self, key: object, found: Outcome | PgpacesError, listener: SweepListener
    ) -> None:
        # A server that says how few connections it has is there: another load may fit.
        if not isinstance(found, ServerError) or isinstance(found, ConnectionsError):
            self._away[key] = 0
            return
        self._away[key] = self._away.get(key, 0) + 1
        if self._away[key] == AWAY_AFTER:
            listener.away(self.name, found, self.progress.left[self.name])


def _lost(found: Outcome | PgpacesError) -> StoreError | None:
    """Why a trial is not in the store, if it is not."""
    if isinstance(found, Outcome):
        return found.store_error
    return found if isinstance(found, StoreError) else None


def _hopeless(found: Outcome | PgpacesError) -> bool:
    """Whether trying again changes nothing, or would do once more what must not be done."""
    return isinstance(found, _HOPELESS) or (isinstance(found, Outcome) and bool(found.killed))


class _Sites:
    """The server that runs now: the last trial's, kept for the next one if that wants the same.

    One at a time on a machine, so that no other one takes memory or works beside it.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._target: TargetPlan | None = None
        self._site: Site | None = None
        self._contexts: dict[TargetPlan, dict[str, str]] = {}

    def open(self, request: Request, keeping: Keeping) -> Site:
        """The server of a trial. One of ours is started with the settings that need a start.

        Raises ServerError, and PlanError for settings that it does not know.
        """
        target, say = request.target, keeping.listener.say
        if target.dsn is not None:
            return self._open(target, say)
        wanted = dict(request.trial.settings)
        known = self._contexts.setdefault(target, {})
        if unknown := {name: value for name, value in wanted.items() if name not in known}:
            where = self._open(target, say)
            of_server = settings.of_server(where.access, unknown)
            known |= {name: of_server.get(name, "") for name in unknown}
        given = tuple((n, v) for n, v in wanted.items() if known[n] == "postmaster")
        return self._open(replace(target, server_settings=given), say)

    def _open(self, target: TargetPlan, say: Say) -> Site:
        if self._site is not None and self._target == target:
            return self._site
        self.close()
        self._site = self._stack.enter_context(site(target, say))
        self._target = target
        return self._site

    def abandon(self, say: Say) -> None:
        """Ends it where a trial failed; the next one starts anew, whatever that one left."""
        try:
            self.close()
        except PgpacesError as error:
            say(f"warning: {error.message}")

    def close(self) -> None:
        """Ends the server if it is ours."""
        self._site = self._target = None
        self._stack.close()
