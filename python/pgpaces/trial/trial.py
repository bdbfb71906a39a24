"""One trial: prepare, generate, store, from its plan to its answer.

Knows no terminal: a Listener receives the events. Stops ends loads on request of a signal or of
code that has it.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis import goal, validity
from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.digest import Bucket, digest
from pgpaces.analysis.stopping import LOOKS_OF_RUN, certain_in
from pgpaces.analysis.summary import Summary, so_far
from pgpaces.core.errors import PgpacesError, RunError, StoreError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.record import Interval
from pgpaces.core.texts import Warned
from pgpaces.core.units import SECOND_NS
from pgpaces.load.cluster.workers import Clusters, Workers
from pgpaces.load.command import CommandLoad
from pgpaces.load.composite import RunningLoad, Together
from pgpaces.spec.load import GeneratorsPlan
from pgpaces.spec.migration import Pass
from pgpaces.spec.result import State, Trial
from pgpaces.spec.target import TargetPlan
from pgpaces.store.store import Store
from pgpaces.trial.listener import Listener
from pgpaces.trial.monitors import monitoring
from pgpaces.trial.prepare import ReadyTrial, held_back, prepared
from pgpaces.trial.record import Recorder, trial_of
from pgpaces.trial.request import Request, check, check_generators
from pgpaces.trial.target_server import Site, site, source_database, without_pg_variables

# How often, in seconds, a listener learns when the verdict is certain.
_EVERY_S = 5
# The pause between attempts to write to a store that refuses.
_AGAIN_S = 1.0
# The end of a load that ends by count is later than this.
_PLANNED_MAX_NS = 2**61


class Outcome(Struct, frozen=True):
    """A trial that was run, its answer, and the error that kept part of it from the store, if any.

    The trial's intervals are in the store. aborted: the number of clients that gave up. killed: why
    the guard stopped it, if it did. series: the values over time that charts show. stored: its end
    is in the store.
    """

    trial: Trial
    summary: Summary
    error: PgpacesError | None = None
    store_error: StoreError | None = None
    aborted: int = 0
    killed: Finding | None = None
    series: tuple[Bucket, ...] = ()
    stored: bool = True


def run(
    request: Request, listener: Listener | None = None, resources: ExitStack | None = None
) -> Outcome:
    """Runs one trial and stores every second of it.

    resources: see TrialContext; the caller closes it once it has reported the answer. Raises
    PgpacesError if the load cannot start. An error that ends it early is in the outcome, together
    with everything that was measured.
    """
    listener, stops = listener or Listener(), Stops()
    check(request)
    request = replace(request, from_database=source_database(request.from_database))
    store = Store.open(request.store) if request.keep else None
    with ExitStack() as own:
        if store is not None:
            own.callback(store.close)
        with closing(Clusters()) as clusters, site(request.target, listener.say) as where:
            context = TrialContext(listener, stops, store, 0.0, resources or own, clusters)
            return run_at(where, request, context)


class Stops:
    """Ends the running loads on request. requests: how often that was requested."""

    def __init__(self) -> None:
        self.requests = 0
        self._requested = threading.Event()
        self._loads: list[Together] = []
        self._lock = threading.Lock()

    @contextmanager
    def over(self, load: Together) -> Iterator[None]:
        """Applies earlier and later requests to this load too."""
        with self._lock:
            self._loads = [*self._loads, load]
        try:
            if self.requests:
                load.stop()
            if self.requests > 1:
                load.abort()
            yield
        finally:
            with self._lock:
                self._loads = [other for other in self._loads if other is not load]

    def ask(self) -> None:
        """First: nothing new falls due. Again: ends at once."""
        self.requests += 1
        self._requested.set()
        for load in self._loads:  # code that begins one meanwhile checks `requests`
            if self.requests == 1:
                load.stop()
            else:
                load.abort()

    def check(self) -> None:
        """Raises StoppedError after a request."""
        if self.requests:
            raise StoppedError("stopped-before-load")

    def rest(self, seconds: float) -> None:
        self._requested.wait(seconds)


class StoppedError(RunError):
    """The end was requested before anything was measured."""


@contextmanager
def signals(stops: Stops, listener: Listener) -> Iterator[None]:
    """While active, Ctrl-C, SIGTERM and SIGHUP in the main thread request the end.

    Each counts, and at once: a handler in Python would run only after the main thread has waited
    for the next second, and once for all signals until then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # A closed terminal ends it like Ctrl-C, unless nohup ignores SIGHUP.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)

    def receive() -> None:
        while byte := os.read(reads, 1):
            if byte[0] in numbers:
                stops.ask()
                listener.stopping(stops.requests)

    thread = threading.Thread(target=receive, name="pgpaces-signals", daemon=True)
    thread.start()
    wakes = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    # A handler that does nothing, because only a handled signal is written to the pipe.
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(wakes)
        os.close(writes)
        thread.join()
        os.close(reads)


class Companion:
    """What happens beside the load of a trial: nothing, unless its methods are overridden."""

    def open(self, ready: ReadyTrial) -> ReadyTrial:
        """The load is about to begin; with which servers it does. Raises PgpacesError."""
        return ready

    def begin(self, start_ns: int, load: Together) -> None:
        """The measured part begins at start_ns, by time.monotonic_ns(); it may stop the load."""

    def add(self, interval: Interval) -> None:
        """A second has passed."""

    def end(self) -> Pass | None:
        """The load has ended; whatever still runs ends, too."""
        return None

    def close(self) -> None:
        """Gives up what `open` took, also if the load did not begin."""


class TrialContext(Struct, frozen=True):
    """The listener of a trial, what may end it, and the store.

    wait_s: maximum wait at its end for a store that refuses writes. resources: open from the
    beginning of the load to the answer, so that a signal after the load does not cost the answer.
    clusters: of generators. companion: of this trial.
    """

    listener: Listener
    stops: Stops
    store: Store | None
    wait_s: float = 0.0
    resources: ExitStack = field(default_factory=ExitStack)
    clusters: Clusters = field(default_factory=Clusters)
    companion: Companion = field(default_factory=Companion)

    def write(self, write: Callable[[], None]) -> None:
        """Writes to the store, and retries for wait_s while the store refuses.

        Raises StoreError if it refuses to the end, or if the end is requested meanwhile.
        """
        deadline, warned = time.monotonic() + self.wait_s, False
        while True:
            try:
                return write()
            except StoreError as error:
                if self.stops.requests or time.monotonic() >= deadline:
                    raise
                if not warned:
                    text = message("store-retried", error=error.message, wait_s=self.wait_s)
                    self.listener.say(Warned(text))
                warned = True
            self.stops.rest(_AGAIN_S)


def run_at(where: Site, request: Request, context: TrialContext) -> Outcome:
    """Runs one trial on a running server. Raises as `run`."""
    stops = context.stops
    with prepared(where, request, context.listener.say, check=stops.check) as ready:
        stops.check()
        return _measure(ready, context)


def _measure(ready: ReadyTrial, context: TrialContext) -> Outcome:
    listener, stops, store = context.listener, context.stops, context.store
    before, companion = store.size_bytes() if store else 0, context.companion
    trial = trial_of(ready)
    stops_on_store_error = ready.request.spec.get("on_store_error") == "stop"
    error: PgpacesError | None = None
    with monitoring(ready, listener.say) as monitors, closing(companion):
        ready = companion.open(ready)
        load, facts = _loads(ready, context)
        trial = replace(trial, setup=trial.setup.but(**facts))
        recorder = Recorder(store, trial, listener.say)
        context.resources.enter_context(signals(stops, listener))
        with stops.over(load):
            try:
                stops.check()
                recorder.begin()
                monitors.ready()
                begins_ns = load.begin()
                listener.started(trial, load.connect_ns)
                monitors.begin((begins_ns + ready.request.trial.warmup) / 1e9)
                companion.begin(begins_ns + ready.request.trial.warmup, load)
                looks = Looks(trial, listener)
                try:
                    for interval in load:
                        recorder.add(interval, monitors.drain(), monitors.news(interval.second))
                        if recorder.error and stops_on_store_error:
                            load.stop()
                        listener.interval(interval)
                        companion.add(interval)
                        monitors.sample(load)
                        looks.after(interval.second, recorder.accumulator, load)
                except PgpacesError as ended_by:
                    error = ended_by
                    load.abort()
            except BaseException:
                load.abort()
                raise
            finally:
                rehearsed = companion.end()
        ended_early = bool(stops.requests or monitors.reason)
        answers = monitors.answers()
    stopped = recorder.error if stops_on_store_error else None
    why = error or stopped
    state: State = "failed" if why else "interrupted" if ended_early else "finished"
    accumulator = recorder.accumulator
    with recorder.beating():
        if state == "finished" and ready.request.observe and answers:
            monitors.explain()
        measured_ns = looks.measured_ns(load.end_ns, accumulator.ended_ns)
        series = recorder.series(monitors.drain())
        trial = replace(
            trial,
            state=state,
            ended_at=datetime.now(UTC),
            measured_ns=measured_ns,
            error=str(why) if why else None,
            notes=(*trial.notes, *recorder.notes, *monitors.notes()),
            findings=(
                *trial.findings,
                *load.findings,
                *validity.given_up(accumulator.aborted, load.clients, error=recorder.first_error),
                *monitors.findings(series, measured_ns // 10**9),
                *held_back(ready.components, accumulator, guest=not ready.site.managed),
                *_stored(recorder, store, before),
            ),
            samples=series,
            explained=monitors.explained,
            observed=monitors.observed(),
            rehearsed=rehearsed,
        )
        shown = digest(trial, accumulator)
        failed: StoreError | None = None
        try:
            context.write(lambda: recorder.finish(trial, shown))
        except StoreError as refused:
            failed = refused
    ends = (error, failed or stopped, accumulator.aborted, monitors.reason)
    return Outcome(trial, shown.summary, *ends, shown.series, failed is None)


class Looks:
    """The looks at a trial, if it ends by them.

    A look at second t waits until everything that was due before t has ended or is late.
    """

    def __init__(self, trial: Trial, listener: Listener) -> None:
        self._trial, self._listener = trial, listener
        self._wait_s = math.ceil(max(goal.limits_ns(trial), default=0) / 1e9)
        self._left = [*LOOKS_OF_RUN.at] if trial.plan.auto else []
        self._ended_s: int | None = None

    def after(self, second: int, accumulator: Accumulator, load: Together) -> None:
        """Stops the load if the verdict is certain, now that it has reported this second."""
        at = second + 1 - self._wait_s
        if not self._left or at < _EVERY_S or (at != self._left[0] and at % _EVERY_S):
            return
        if at * SECOND_NS > load.end_ns:  # it was stopped for another reason
            return
        found, allowed = so_far(self._trial, accumulator, at), goal.allowed(self._trial)
        missed = None if found is None else found.share(at)
        if at == self._left[0]:
            del self._left[0]
            if not self._left or goal.verdict(missed, allowed) != "unknown":
                self._left, self._ended_s = [], at
                load.stop()
                return
        if found is not None and missed is not None:
            self._listener.looked(missed, certain_in(found, at, allowed))

    def measured_ns(self, planned_ns: int, ended_ns: int) -> int:
        """The length of the measured part: until the look that decided, else as planned, or to the
        end of the load if that was earlier.
        """
        if self._ended_s is not None:
            return self._ended_s * SECOND_NS
        return max(0, min(planned_ns if planned_ns < _PLANNED_MAX_NS else ended_ns, ended_ns))


def _loads(ready: ReadyTrial, context: TrialContext) -> tuple[Together, dict[str, Any]]:
    several = ready.request.trial.generators
    workers = None if several is None else workers_for(several, context, ready.request.target)
    own, others = list[RunningLoad](), list[RunningLoad]()
    try:
        for component in ready.components:
            loads = others if component.work.name else own
            loads.append(component.load(ready.connection(component), workers))
    except BaseException:
        for load in (*own, *others):
            load.abort()
        raise

    def stop() -> None:
        for load in others:
            load.stop()

    # Background workloads of a command end when it ends, not a second later. A trial that is a
    # command has no other load of its own: it has one client, on one server.
    if isinstance(own[0], CommandLoad):
        own[0].then = stop
    every = Together(own, others)
    facts: dict[str, Any] = {"poll": every.poll}
    if workers is not None:
        from pgpaces.load.cluster.load import DealtLoad

        parts = [load for load in (*own, *others) if isinstance(load, DealtLoad)]
        generated = tuple(each for load in parts for each in load.generated)
        facts |= {"threads": every.threads, "generators": generated}
    return every, facts


def workers_for(plan: GeneratorsPlan, context: TrialContext, target: TargetPlan) -> Workers:
    """Places for generators that may load a target. Raises PlanError, RunError."""
    # For the connections of this process; generators receive theirs in their order.
    with without_pg_variables():
        places = context.clusters.workers(plan, context.listener.say)
    check_generators(plan, target, local=places.here)
    return places


def _stored(recorder: Recorder, store: Store | None, before: int) -> Iterator[Finding]:
    server = recorder.trial.server
    if store and store.path and server.data_directory and is_local(server.target):
        with suppress(OSError):
            if Path(server.data_directory).stat().st_dev == store.path.stat().st_dev:
                written = max(0, store.size_bytes() - before) / 1024
                yield finding("store-on-disk", written_kib=written)
    if recorder.unread:
        yield finding("monitor-readings-unread")
    if recorder.delayed:
        yield finding("store-delayed", delayed_s=recorder.delayed)
