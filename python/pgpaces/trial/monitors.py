"""Monitors of the server during a load, and once after it: guard, sensors, plans."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from pgpaces.analysis import throttle
from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.series import Sample, Series
from pgpaces.load import engine as generator
from pgpaces.load.composite import Together
from pgpaces.load.engine import for_driver
from pgpaces.monitor import guard, host, plans, remote, server
from pgpaces.spec.result import Blocked, Explained, Observed
from pgpaces.trial.command import Counters
from pgpaces.trial.components import ComponentLoad
from pgpaces.trial.listener import Listener
from pgpaces.trial.ready_trial import ReadyTrial
from pgpaces.trial.request import POOL, PRIMARY

# Characters of a script up to which its statements are explained: that executes each once more.
_EXPLAINED_MAX = 2**20
# Seconds between observations that are stored as a whole, at least.
_WHOLE_S = 10


@contextlib.contextmanager
def monitoring(ready: ReadyTrial, listener: Listener) -> Iterator[Monitors]:
    keywords = for_driver(connection := ready.primary())
    with contextlib.ExitStack() as stack:
        watcher = None
        if ready.request.trial.guard and not ready.site.managed:
            listener.say(message("guard-measures-before"))
            login = generator.resolve("", **{**keywords, "application_name": guard.APPLICATION})
            name = connection.keywords["application_name"]
            watcher = stack.enter_context(
                guard.guarding(keywords, name, lambda: generator.probe(login))
            )
        monitors = Monitors(ready, keywords, watcher)
        if ready.request.observe:
            monitors.open(stack)
        yield monitors


def _of_node(series: Iterable[Series], node: str) -> list[Series]:
    parts = [(each.source.rpartition("/"), each) for each in series]
    return [replace(each, source=source) for (of, _, source), each in parts if of == node]


class Monitors:
    """All monitors of a trial. explained: see `explain`. reason: why the load was stopped."""

    def __init__(
        self,
        ready: ReadyTrial,
        keywords: dict[str, str],
        watcher: guard.Guard | None,
    ) -> None:
        self._ready, self._keywords = ready, keywords
        self._guard, self._counters = watcher, Counters(ready)
        # By node; the key of the primary is "". The generator's machine, if that has no server.
        self._machines: dict[str, host.HostSensor] = {}
        self._servers: dict[str, server.Sensor] = {}
        self._generator: host.HostSensor | None = None
        self.reason: Finding | None = None
        self.explained: tuple[Explained, ...] = ()
        self._notes = Notes()
        self._silent_s = 0.0
        self._whole_at = _WHOLE_S
        self._blocked: dict[str, tuple[Blocked, ...]] = {}

    def open(self, stack: contextlib.ExitStack) -> None:
        """Opens the sensors of the primary and of every standby, and of their machines.

        A standby on the same machine adds no machine. The generator's machine, if no server is on
        it.
        """
        ready, places, servers = self._ready, set[str](), self._servers
        for node in (PRIMARY, *ready.site.standbys):
            name = "" if node == PRIMARY else node
            # The database that a standby serves, if any.
            served = (
                component.work.prepared.dbname
                for component in ready.components
                if component.node == node
            )
            dbname = ready.prepared.dbname if not name else next(served, ready.prepared.dbname)
            connection = ready.way(node, dbname)
            keywords = for_driver(connection)
            place = (
                "" if is_local(keywords) else keywords.get("hostaddr") or keywords.get("host", "")
            )
            if place not in places:
                places.add(place)
                command = None if name else ready.request.target.observe_command
                source = (
                    remote.NearbySource({**keywords, "dbname": dbname})
                    if command is None
                    else remote.RemoteCommand(command)
                )
                self._machines[name] = stack.enter_context(host.sensing(source))
            application = connection.keywords["application_name"]
            primary = servers.get("")
            sensor = server.sensing(
                keywords, dbname, name, application=application, primary=primary
            )
            servers[name] = stack.enter_context(sensor)
        if "" not in places:
            self._generator = stack.enter_context(host.sensing(host.here(())))

    @property
    def _sensors(self) -> list[host.HostSensor | server.Sensor]:
        return [*self._machines.values(), *self._servers.values()]

    def ready(self) -> None:
        self._counters.begin()

    def begin(self, start_s: float) -> None:
        """To be called when the load runs. start_s: start of second 0 by the monotonic clock."""
        if self._guard:
            self._guard.begin()
        for sensor in self._sensors:
            sensor.begin(start_s)
        if self._generator is not None:
            self._generator.begin(start_s)

    def sample(self, load: Together) -> None:
        """To be called once a second. Ends the load when the guard reports a reason."""
        if self._guard and self.reason is None and (reason := self._guard.reason()):
            self.reason = reason
            load.abort()

    def answers(self) -> bool:
        """Whether the server answers after the load; a silent one gets no more queries."""
        self._silent_s = self._servers[""].silent_s() if self._servers else 0.0
        return not self._silent_s

    def explain(self) -> None:
        """Explains each statement once, after the load, so that it slows nothing.

        In a database that must stay as it is, statements are not executed.
        """
        plans_: list[Explained] = []
        first = 0
        for component in self._ready.components:
            plans_ += self._explain(component, first)
            first += len(component.places)
        self.explained = tuple(plans_)

    def _explain(self, component: ComponentLoad, first: int) -> list[Explained]:
        """The plans of a component, from its own server; of a pool, from the primary.

        first: the number of its first script.
        """
        ready, work = self._ready, component.work
        if not work.request.workload.is_scripts:
            return []
        variables = tuple(work.variables().items())
        scripts = [
            (n, script)
            for n, script in enumerate(component.scripts, first)
            if len(script.text) <= _EXPLAINED_MAX
        ]
        if len(scripts) < len(component.scripts):
            self._notes.add(finding("long-scripts-unexplained", most=_EXPLAINED_MAX))
        statements: list[plans.Statement] = []
        for number, script in scripts:
            try:
                rehearsed = generator.rehearse(
                    script.name, script.text, variables, seed=component.plan.seed
                )
            except PgpacesError as error:  # its clients give up, too
                self._notes.add(finding("script-unexplained", why=error.message))
                continue
            statements += ((number, command, text) for command, text in rehearsed)
        as_is = ready.request.as_is and work.prepared.dbname == ready.prepared.dbname
        keywords = (
            self._keywords if component.node == POOL else for_driver(ready.connection(component))
        )
        dbname = work.prepared.dbname
        try:
            notes, analyze = self._notes, not as_is
            return plans.explain(keywords, dbname, statements, analyze=analyze, notes=notes)
        except PgpacesError as error:
            node = component.node if len(ready.components) > 1 else ""
            self._notes.add(finding("plans-missing", node, why=error.message))
            return []

    def drain(self) -> list[Sample]:
        samples = [sample for sensor in self._servers.values() for sample in sensor.drain()]
        for node, machine in self._machines.items():
            prefix = f"{node}/" if node else ""
            samples += [replace(s, source=f"{prefix}{s.source}") for s in machine.drain()]
        if self._generator is not None:
            own = (s for s in self._generator.drain() if s.name in host.OF_GENERATOR)
            samples += [replace(s, source=host.GENERATOR) for s in own]
        return samples

    def news(self, second: int) -> list[Observed]:
        """Other observations that are new; to be called once a second.

        Blocked sessions when they change. All others whenever the load is a tenth longer, as what
        is stored of them grows with its length.
        """
        whole = second >= self._whole_at
        if whole:
            self._whole_at = second + max(_WHOLE_S, second // 10)
        readings = [
            sensor.observed() if whole else sensor.blocked() for sensor in self._servers.values()
        ]
        new = [
            each for each in readings if whole or each.blocked != self._blocked.get(each.node, ())
        ]
        self._blocked.update((each.node, each.blocked) for each in new)
        return new

    def observed(self) -> tuple[Observed, ...]:
        return tuple(sensor.observed() for sensor in self._servers.values())

    def findings(self, series: Sequence[Series], pace: throttle.Pace) -> list[Finding]:
        """The findings of all monitors. series: all samples. pace: of the load in their seconds."""
        findings = []
        for node in self._machines:
            for each in throttle.machine_findings(_of_node(series, node), pace):
                findings.append(replace(each, about=node))
        for node, sensor in self._servers.items():
            findings += sensor.findings(_of_node(series, node))
        findings += self._counters.findings()
        if self._silent_s:
            findings.append(finding("last-readings-missing", silent_s=self._silent_s))
        return findings

    def notes(self) -> Notes:
        notes = Notes()
        if self._guard is not None and self._guard.lacks:
            notes.add(finding("guard-watches-logins", why=self._guard.lacks))
        if self._guard is not None and self._guard.before.others:
            if self._guard.blind:
                notes.add(finding("other-roles-hidden"))
            if self.reason is not None:
                notes.add(self.reason)
        for sensor in self._sensors:
            notes.add(*sensor.notes())
        notes.add(*self._notes)
        return notes
