"""Progress on stderr, and what else follows a load: its live page and its metrics.

Progress is a line that is rewritten on a terminal, else a line every few seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from pgpaces.cli.output import announce
from pgpaces.core.errors import PgpacesError, PlanError, similar
from pgpaces.core.locality import is_loopback
from pgpaces.core.messages import message
from pgpaces.core.texts import Warned
from pgpaces.core.units import digits
from pgpaces.show import escape
from pgpaces.trial.listener import Listener, SweepListener

if TYPE_CHECKING:
    from pgpaces.core.record import Interval, Tally
    from pgpaces.spec.design import Ask
    from pgpaces.spec.result import Estimate, Trial
    from pgpaces.trial.listener import Progress
    from pgpaces.trial.trial import Outcome
    from pgpaces.web.companion import Outputs

# The largest number of printed lines of clients that differ only in numbers.
_ALIKE_MAX = 5
_DIGITS = re.compile(r"\d+")
_LOOPBACK = "127.0.0.1"
_PORT_MAX = 65535
# The port of metrics, next to that of `pgpaces serve`; no exporter of Prometheus' list has it.
PORT = 8433
_KINDS = ("prometheus", "otlp")


class Teller:
    """Lines on stderr; on a terminal one that is rewritten. Threads may write at the same time."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self._open = False
        self._alike: Counter[str] = Counter()
        # Reentrant, as a signal may interrupt this very thread while it writes.
        self._lock = threading.RLock()

    def tell(self, text: str, *, rewrite: bool = False, whole: bool = False) -> None:
        """Writes a line, over the last one if that was a rewritten one. whole: never cut."""
        # A closed stderr does not end the run.
        with contextlib.suppress(OSError), self._lock:
            text = escape.lines(text) if whole else escape.line(text)
            if not self.terminal:
                click.echo(text, err=True)
                return
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            shown = text if whole else text[:width]
            click.echo(f"\r\x1b[K{shown}" + ("" if rewrite else "\n"), err=True, nl=False)
            self._open = rewrite

    def still_new(self, text: str) -> bool:
        like = _DIGITS.sub("0", text)
        with self._lock:
            self._alike[like] += 1
            return self._alike[like] <= _ALIKE_MAX

    def done(self) -> None:
        """Clears the rewritten line, and prints how many similar lines were suppressed."""
        if self._open:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._open = False
        for like, times in self._alike.items():
            if times > _ALIKE_MAX:
                text = message("lines-alike", count=times - _ALIKE_MAX, line=like)
                self.tell(text, whole=True)
        self._alike.clear()


class LiveLine:
    """The current state of a load: counts and the p95 since the last line.

    scripts: how many scripts it has itself, before those of background workloads; None: all.
    """

    def __init__(self, scripts: int | None = None) -> None:
        self._scripts = scripts
        self._stage = ""
        self.certainty = ""
        self._clear()

    def _clear(self) -> None:
        self.seconds = 0
        self._sum: tuple[Tally, ...] = ()

    def add(self, interval: Interval) -> None:
        from pgpaces.core.record import total

        every, own = interval.tallies, self._scripts
        new = (each for each in every if own is None or each.script < own)
        self._sum = (total((*self._sum, *new)),)
        self.seconds += 1
        self._stage = "warm-up" if interval.second < 0 else f"{interval.second + 1} s"

    def text(self) -> str:
        from pgpaces.core.times import quantiles_ms
        from pgpaces.show.number_text import milliseconds, percent, rate
        from pgpaces.spec.result import counts

        # Of what ended: on an overloaded server what falls due waits for many lines.
        [whole] = self._sum
        sums = counts(self._sum)
        [p95_ms] = quantiles_ms(whole.latency, (0.95,), sums.ended)
        done = f"{rate(whole.latency.count / self.seconds)}/s  p95 {milliseconds(p95_ms, '–')} ms"
        share = f"{percent(sums.missed / sums.ended)}%" if sums.ended else "–"
        missed = self.certainty or f"missed {share}"
        missed += f"  {sums.failed} failed" if sums.failed else ""
        self._clear()
        return f"{self._stage}: {done}  {missed}"


class TrialProgress(Listener):
    """Progress of a trial. name: of one of an experiment, before every line."""

    def __init__(self, every_s: int | None, teller: Teller | None = None, name: str = "") -> None:
        self._teller = teller or Teller()
        self._quiet = every_s == 0
        self._prefix = f"{name}: " if name else ""
        if every_s is None:
            # On a terminal one line is rewritten; else an experiment has a line for each trial.
            every_s = 1 if self._teller.terminal else 0 if name else 5
        self._every_s = every_s
        self._live = LiveLine()
        self._by_command = False
        self._last_say = 0.0
        self._last_stage = ""

    def say(self, text: str) -> None:
        if isinstance(text, Warned) and not self._quiet:
            self._teller.tell(f"{self._prefix}{text}", whole=True)
            return
        if not self._every_s:
            return
        now, stage = time.monotonic(), text.split(",", maxsplit=1)[0]
        if self._teller.terminal or now - self._last_say >= 5 or stage != self._last_stage:
            self._teller.tell(f"{self._prefix}{text}", rewrite=True)
            self._last_say, self._last_stage = now, stage

    def started(self, trial: Trial, connect_ns: int) -> None:
        from pgpaces.analysis.accumulator import own_scripts

        self._by_command = trial.workload.command_alone
        self._live = LiveLine(len(own_scripts(trial)))
        if self._every_s and not self._prefix:
            clients, load = trial.setup.own_clients, trial.load_text
            name = trial.workload.name
            self._teller.tell(message("running", workload=name, load=load, clients=clients))

    def interval(self, interval: Interval) -> None:
        for level, text in interval.lines:
            prefix = {"plain": "", "info": "pgpaces: "}.get(level, f"pgpaces: {level}: ")
            # Output of \\echo is printed always, similar messages of clients only a few times.
            if level == "plain" or self._teller.still_new(text):
                self._teller.tell(f"{prefix}{text}", whole=True)
        # The last line of a command says more; it comes as a stage.
        if self._by_command or not self._every_s:
            return
        self._live.add(interval)
        if self._live.seconds >= self._every_s:
            self._teller.tell(f"{self._prefix}{self._live.text()}", rewrite=True)

    def looked(self, missed: Estimate, certain_in_s: float | None) -> None:
        values = {"missed": missed.value, "ci": (missed.low, missed.high)}
        self._live.certainty = (
            message("live-uncertain", **values)
            if certain_in_s is None
            else message("live-certain", certain_s=certain_in_s, **values)
        )

    def stopping(self, count: int) -> None:
        if count == 1:
            self._teller.tell(message("stopping-command" if self._by_command else "stopping-load"))

    def done(self) -> None:
        self._teller.done()


class SweepProgress(SweepListener):
    def __init__(self, every_s: int | None) -> None:
        self.teller = Teller()
        self._every_s = every_s
        self._progress: Progress | None = None
        self._stopping = False

    def trial(self, machine: str, ask: Ask, attempt: int, *, progress: Progress) -> Listener:
        self._progress = progress
        again = ", again" if attempt > 1 else ""
        name = _name(machine, ask, progress.place())
        return TrialProgress(self._every_s, self.teller, f"{name}{again}")

    def done(self, machine: str, ask: Ask, outcome: Outcome | PgpacesError) -> None:
        if self._every_s == 0 or self._progress is None:
            return
        from pgpaces.show.number_text import clock

        # An error that the end of the experiment caused is none that the user has to fix.
        stopped = self._stopping and isinstance(outcome, PgpacesError)
        text = message("trial-not-begun") if stopped else _result(outcome)
        if seconds := self._progress.seconds_left():
            now = datetime.now().astimezone()
            then = now + timedelta(seconds=seconds)
            until = then.strftime("%H:%M" if then.date() == now.date() else "%a %H:%M")
            text += message("trials-left", left=clock(seconds), until=until)
        name = _name(machine, ask, self._progress.place())
        self.teller.tell(f"{name}: {text}", whole=True)

    def due(self, machine: str, ask: Ask) -> None:
        if self._every_s != 0:
            text = f"{_name(machine, ask)}: {ask.why}"
            self.teller.tell(text, rewrite=True, whole=not self.teller.terminal)

    def away(self, machine: str, error: PgpacesError, trials: int) -> None:
        # In a sequential design the number of trials left is unknown.
        name = "experiment-left-count" if trials else "experiment-left"
        text = message(name, trials=trials, why=error.message)
        self.teller.tell(f"{machine}: {text}" if machine else text, whole=True)

    def stopping(self, count: int) -> None:
        self._stopping = True
        if count == 1:
            self.teller.tell(message("stopping-trials"))


def _name(machine: str, ask: Ask, place: str = "") -> str:
    """A trial: its load in a search for a capacity, else its place in the experiment."""
    from pgpaces.analysis.capacity.search import trial_label

    name = trial_label(ask.cell) or f"{place} {ask.cell}".lstrip()
    return f"{machine}: {name}" if machine else name


def _result(outcome: Outcome | PgpacesError) -> str:
    """What a trial found, or why it could not run or be stored, and what to do."""
    from pgpaces.analysis import bulk
    from pgpaces.analysis.capacity.search import objections
    from pgpaces.answers.bulk import result
    from pgpaces.show.number_text import quantile, rate, share_in_words

    error = outcome if isinstance(outcome, PgpacesError) else outcome.error or outcome.store_error
    if error is not None or isinstance(outcome, PgpacesError):
        hint = f" ({error.hint})" if error and error.hint else ""
        return message("trial-failed", why=error and error.message, hint=hint)
    summary, workload = outcome.summary, outcome.trial.workload
    command = bulk.of(outcome.trial, summary) if workload.about_command else None
    parts = [] if command is None else [str(result(command))]
    if summary.missed is None:
        parts += [] if workload.command_alone else [message("nothing-was-due")]
    elif not workload.command_alone:
        p99 = quantile(summary.latency.p99, "above every time")
        unit = " ms" if p99[0].isdigit() else ""
        parts += [f"{rate(summary.throughput.value)}/s", f"p99 {p99}{unit}"]
        parts.append(f"missed {share_in_words(summary.missed)}")
    parts += [outcome.trial.state] if outcome.trial.state != "finished" else []
    invalid = [each.name for each in objections(summary)]
    return ", ".join([*parts, *([f"invalid: {'; '.join(invalid)}"] if invalid else ())])


@contextlib.contextmanager
def followed(params: Mapping[str, Any], warn: Callable[[str], None]) -> Iterator[None]:
    """With --live and --metrics: what follows the load runs, and its links were printed.

    warn: prints a warning. Raises PlanError, RunError.
    """
    outputs = outputs_of(params["live"], params["metrics"])
    if not outputs or params["dry_run"]:
        yield
        return
    from pgpaces.store import address as addresses
    from pgpaces.web.companion import Companion

    store = params["store_path"]
    if store is not None and isinstance(addresses.located(store), Path):
        store = str(Path(store).resolve())
    companion = Companion(store, outputs, warn)
    if companion.live:
        click.echo(f"live: {companion.live}", err=True)
    if url := companion.prometheus:
        click.echo(f"metrics: {url}", err=True)
        if outputs.prometheus and not is_loopback(outputs.prometheus[0]):
            announce("metrics-readable", url=url)
    try:
        yield
    finally:
        companion.close()


def outputs_of(live: bool, metrics: tuple[str, ...]) -> Outputs:
    from pgpaces.web.companion import Outputs

    values: dict[str, Any] = {}
    for text in metrics:
        kind, equals, value = text.partition("=")
        if kind not in _KINDS:
            near, choices = similar(kind, _KINDS), ["prometheus", "otlp=http://HOST:4318"]
            raise PlanError(
                "not-a-choice", what="--metrics", value=text, choices=choices, near=near
            )
        if kind in values:
            raise PlanError("given-twice", what=f"--metrics {kind}")
        where = value if equals else str(PORT)
        values[kind] = (
            address(where, "--metrics prometheus") if kind == "prometheus" else _url(value)
        )
    return Outputs(live, **values)


def address(text: str, option: str) -> tuple[str, int]:
    """ADDRESS:PORT, [ADDRESS]:PORT or PORT. Raises PlanError."""
    host, colon, port = text.rpartition(":")
    number = digits(port)
    if number is None or number > _PORT_MAX:
        raise PlanError("not-a-port", option=option, value=text, most=_PORT_MAX)
    return host.strip("[]") if colon else _LOOPBACK, number


def _url(text: str) -> str:
    """The URL of a receiver of OTLP. Raises PlanError."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            if "@" not in parts.netloc:
                return text
            raise PlanError("password-in-url")
    raise PlanError("not-an-otlp-url", url=text)
