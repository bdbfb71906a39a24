"""What looks at the server beside a load, and once behind it: kill switch, sensors, plans."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pgpaces.answers import throttle
from pgpaces.errors import PgpacesError
from pgpaces.experiment.cell import Cell
from pgpaces.experiment.listener import Listener
from pgpaces.experiment.site import for_driver
from pgpaces.experiment.stops import Load
from pgpaces.generators import engine as generator
from pgpaces.observe import host, plans, postgres, remote, server
from pgpaces.result import Explained, Finding, Observed, Sample


@contextlib.contextmanager
def beside(cell: Cell, connection: generator.Connection, listener: Listener) -> Iterator[Beside]:
    """Who looks, as long as the load lasts; they keep what they saw."""
    keywords, factor = for_driver(connection), cell.request.trial.kill_switch
    with contextlib.ExitStack() as stack:
        watch, sensors = None, None
        if factor is not None:
            name = connection.keywords["application_name"]
            listener.say("kill switch: looking at the server as it is without the load")
            watch = stack.enter_context(postgres.watch(keywords, name, factor))
        if cell.request.observe:
            dbname, command = cell.prepared.dbname, cell.request.target.observe_command
            source = remote.watched(keywords, dbname, command)
            sensors = _Sensors(
                stack.enter_context(host.sensing(source)),
                stack.enter_context(
                    server.sensing(
                        keywords, dbname, application=connection.keywords["application_name"]
                    )
                ),
            )
        yield Beside(cell, keywords, _Guard(watch), sensors)


@dataclass(frozen=True, slots=True)
class _Sensors:
    """Of the server's machine, and of the server."""

    machine: host.Sensor
    server: server.Sensor

    def samples(self) -> tuple[Sample, ...]:
        """What both read, by second."""
        both = (*self.machine.samples(), *self.server.samples())
        return tuple(sorted(both, key=lambda sample: sample.second))

    def findings(self, pace: throttle.Pace) -> list[Finding]:
        """What both found. pace: what the load did meanwhile."""
        return [*throttle.findings(self.machine.samples(), pace), *self.server.findings()]


class _Guard:
    """Stops the load when the watch says so. reason: why it did."""

    def __init__(self, watch: postgres.Watch | None) -> None:
        self._watch = watch
        self.reason: str | None = None

    def begin(self) -> None:
        """The load runs."""
        if self._watch:
            self._watch.begin()

    def look(self, load: Load) -> None:
        """To be called once a second."""
        if self._watch and self.reason is None and (reason := self._watch.reason()):
            self.reason = f"kill switch: {reason}"
            load.stop()

    def notes(self) -> list[str]:
        """What the answer says of it."""
        if self._watch is None:
            return []
        found = [f"kill switch: before the load, {self._watch.before}"]
        if self._watch.blind:
            found.append(
                "kill switch: statements of other roles are hidden from this one; grant it"
                " pg_read_all_stats"
            )
        return found if self.reason is None else [*found, self.reason]


class Beside:
    """All who look. explained: see `explain`."""

    def __init__(
        self,
        cell: Cell,
        keywords: dict[str, str],
        guard: _Guard,
        sensors: _Sensors | None,
    ) -> None:
        self._cell, self._keywords, self._guard = cell, keywords, guard
        self._sensors = sensors
        self.explained: tuple[Explained, ...] = ()
        self._notes: list[str] = []

    @property
    def reason(self) -> str | None:
        """Why the load was stopped."""
        return self._guard.reason

    def begin(self, start_s: float) -> None:
        """The load runs. start_s: when second 0 begins, by the monotonic clock."""
        self._guard.begin()
        if self._sensors:
            self._sensors.machine.begin(start_s)
            self._sensors.server.begin(start_s)

    def look(self, load: Load) -> None:
        """To be called once a second."""
        self._guard.look(load)

    def explain(self) -> None:
        """How each statement is executed, once, behind the load: nothing is slower by it.

        In a database that stays as it is for its owner, statements are not executed.
        """
        cell = self._cell
        variables = tuple(cell.variables().items())
        statements = [
            (number, command, text)
            for number, script in enumerate(cell.scripts)
            for command, text in generator.rehearse(
                script.name, script.text, variables, cell.request.trial.seed
            )
        ]
        analyze = not cell.request.target.as_is
        try:
            found = plans.explain(
                self._keywords, cell.prepared.dbname, statements, analyze, self._notes.append
            )
        except PgpacesError as error:
            self._notes.append(f"plans: {error.message}")
            return
        self.explained = tuple(found)

    def samples(self) -> tuple[Sample, ...]:
        """What the sensors read."""
        return self._sensors.samples() if self._sensors else ()

    def observed(self) -> tuple[Observed, ...]:
        """What else they saw of each server."""
        return (self._sensors.server.observed(),) if self._sensors else ()

    def findings(self, pace: throttle.Pace) -> list[Finding]:
        """What the sensors found. pace: what the load did meanwhile."""
        return self._sensors.findings(pace) if self._sensors else []

    def notes(self) -> list[str]:
        """What is to be said of it."""
        sensors = (self._sensors.machine, self._sensors.server) if self._sensors else ()
        read = [note for sensor in sensors for note in sensor.notes()]
        return [*self._guard.notes(), *read, *self._notes]
