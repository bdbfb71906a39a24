"""Progress on stderr: a line that is rewritten on a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections import Counter, deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from pgpaces.core.messages import message
from pgpaces.core.texts import Warned
from pgpaces.show import escape
from pgpaces.trial.listener import Listener, SweepListener

if TYPE_CHECKING:
    from pgpaces.analysis.summary import Summary
    from pgpaces.core.errors import PgpacesError
    from pgpaces.core.record import Interval, Tally
    from pgpaces.spec.design import Ask
    from pgpaces.spec.result import Estimate, Trial
    from pgpaces.trial.listener import Progress
    from pgpaces.trial.trial import Outcome

# The width of the bar of a trial, and the number of values in its sparkline.
_BAR, _SPARKLINE = 12, 16
# The largest number of printed lines of clients that differ only in numbers.
_ALIKE_MAX = 5
_DIGITS = re.compile(r"\d+")


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
    """The current state of a load: counts since the last line, and a p95 of each line.

    whole_s: its duration with the warm-up; None if a count ends it. scripts: how many scripts it
    has itself, before the scripts of background workloads; None: all.
    """

    def __init__(self, whole_s: float | None, scripts: int | None = None) -> None:
        self._whole_s, self._scripts = whole_s, scripts
        self._passed = 0
        self._stage = ""
        self._p95: deque[float | None] = deque(maxlen=_SPARKLINE)
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
        self._passed += 1
        self._stage = "warm-up" if interval.second < 0 else f"{interval.second + 1} s"

    def text(self, *, terminal: bool) -> str:
        from pgpaces.core.times import quantiles_ms
        from pgpaces.show.numbers import clock, milliseconds, percent, rate, sparkline
        from pgpaces.spec.result import counts

        # Of what ended: on an overloaded server what falls due waits for many lines.
        [whole] = self._sum
        sums = counts(self._sum)
        self._p95 += quantiles_ms(whole.latency, (0.95,), sums.ended)
        p95 = milliseconds(self._p95[-1], "–")
        done = f"{rate(whole.latency.count / self.seconds)}/s  p95 {p95} ms"
        share = f"{percent(sums.missed / sums.ended)}%" if sums.ended else "–"
        missed = self.certainty or f"missed {share}"
        missed += f"  {sums.failed} failed" if sums.failed else ""
        self._clear()
        if not terminal:
            return f"{self._stage}: {done}  {missed}"
        bar, left = "", f"{self._stage}  "
        if self._whole_s:
            full = round(_BAR * min(1.0, self._passed / self._whole_s))
            bar = f"{'█' * full}{'░' * (_BAR - full)} "
            # Seconds after the last one are of transactions that still run.
            ahead_s = self._whole_s - self._passed
            left = f"{clock(ahead_s)} left  " if ahead_s > 0 else "ending  "
        return f"{bar}{left}{done}  {missed}  {sparkline(tuple(self._p95))}"


class TrialProgress(Listener):
    """Progress of a trial: a rewritten line on a terminal, else a line every few seconds."""

    def __init__(
        self,
        every_s: int | None,
        teller: Teller | None = None,
        prefix: str = "",
        *,
        suffix: str = "",
        quiet: bool | None = None,
    ) -> None:
        self._teller = teller or Teller()
        self._quiet = every_s == 0 if quiet is None else quiet
        self._prefix, self._suffix = prefix, suffix
        self._every_s = every_s if every_s is not None else (1 if self._teller.terminal else 5)
        self._live = LiveLine(None)
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
        plan = trial.plan
        whole_ns = plan.duration_ns and plan.warmup + plan.duration_ns
        whole_s = None if plan.auto or not whole_ns else whole_ns / 1e9
        self._live = LiveLine(whole_s, len(own_scripts(trial)))
        if not self._every_s or self._prefix:
            return
        name = "running-duration" if plan.duration_ns else "running-transactions"
        name = "running-auto" if plan.auto else name
        text = message(
            "running" if self._by_command else name,
            workload=trial.workload.name,
            load=trial.load_text,
            clients=trial.setup.own_clients,
            count=plan.transactions,
            seconds=(whole_ns or 0) / 1e9,
        )
        self._teller.tell(text)

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
            text = self._live.text(terminal=self._teller.terminal and not self._prefix)
            self._teller.tell(f"{self._prefix}{text}{self._suffix}", rewrite=True)

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
    """Progress of an experiment: a line for each trial that has ended, with its result."""

    def __init__(self, every_s: int | None) -> None:
        self.teller = Teller()
        self._every_s = (1 if self.teller.terminal else 0) if every_s is None else every_s
        self._quiet = every_s == 0
        self._progress: Progress | None = None
        self._stopping = False
        self._why: dict[str, str] = {}

    def trial(self, machine: str, ask: Ask, attempt: int, *, progress: Progress) -> Listener:
        """The progress of a trial: in the rewritten line, with its place in the experiment."""
        self._progress = progress
        at = f"{machine}: " if machine else ""
        again = ", again" if attempt > 1 else ""
        searched = _searched(ask)
        prefix = f"{at}{searched or f'{progress.place()}{again} {ask.cell}'}"
        prefix += f"{again}: " if searched else ": "
        why = self._why.get(machine, "")
        suffix = f"; {why}" if why else ""
        return TrialProgress(self._every_s, self.teller, prefix, suffix=suffix, quiet=self._quiet)

    def done(self, machine: str, ask: Ask, outcome: Outcome | PgpacesError) -> None:
        if self._quiet or self._progress is None:
            return
        from pgpaces.core.errors import PgpacesError
        from pgpaces.show.numbers import clock

        progress = self._progress
        at = f"{machine}: " if machine else ""
        searched = _searched(ask)
        if searched and not (self._stopping and isinstance(outcome, PgpacesError)):
            if isinstance(outcome, PgpacesError) or outcome.error or outcome.store_error:
                result = f": {_result(outcome)}"
            else:
                result = _of_search(outcome.trial, outcome.summary)
            self.teller.tell(f"{at}{searched}{result}", whole=True)
            return
        seconds = progress.seconds_left()
        left = ""
        if seconds:
            now = datetime.now().astimezone()
            then = now + timedelta(seconds=seconds)
            until = then.strftime("%H:%M" if then.date() == now.date() else "%a %H:%M")
            left = message("trials-left", left=clock(seconds), until=until)
        # An error that the end of the experiment caused is none that the user has to fix.
        stopped = self._stopping and isinstance(outcome, PgpacesError)
        text = message("trial-not-begun") if stopped else _result(outcome)
        self.teller.tell(f"{at}{progress.place()} {ask.cell}: {text}{left}", whole=True)

    def due(self, machine: str, ask: Ask) -> None:
        """Prints the next trial and why it was chosen: on a terminal in the rewritten line."""
        self._why[machine] = ask.why
        if not self._quiet:
            at = f"{machine}: " if machine else ""
            text = f"{at}{_searched(ask) or ask.cell}: {ask.why}"
            self.teller.tell(text, rewrite=True, whole=not self.teller.terminal)

    def away(self, machine: str, error: PgpacesError, trials: int) -> None:
        # In a sequential design the number of trials left is unknown.
        name = "experiment-left-count" if trials else "experiment-left"
        at = f"{machine}: " if machine else ""
        text = message(name, trials=trials, why=error.message)
        self.teller.tell(f"{at}{text}", whole=True)

    def stopping(self, count: int) -> None:
        self._stopping = True
        if count == 1:
            self.teller.tell(message("stopping-trials"))


def _searched(ask: Ask) -> str | None:
    """The name of a trial of a search for a capacity; None for any other trial."""
    from pgpaces.analysis.capacity.search import trial_label

    return trial_label(ask.cell)


def _of_search(trial: Trial, summary: Summary) -> str:
    """Duration and missed share of a trial of a search, to stand after its load."""
    from pgpaces.analysis.capacity.search import objections
    from pgpaces.analysis.sequential import SATURATING, role
    from pgpaces.show.numbers import rate, share_in_words
    from pgpaces.spec.design import Cell

    missed = summary.missed
    took = f" for {(trial.measured_ns or 0) / 1e9:.0f} s"
    if missed is None:
        return f"{took}: {message('nothing-was-due')}"
    of = role(Cell(tuple(trial.place.levels.items()))) if trial.place else ""
    if of == SATURATING:
        return f"{took}: {rate(summary.throughput.value)}/s"
    share = f"missed {share_in_words(missed)}"
    if trial.state != "finished":
        return f"{took}: {share}, {trial.state}"
    reasons = "; ".join(each.name for each in objections(summary))
    if reasons:
        return f"{took}: {share}, invalid: {reasons}"
    late = message("generator-was-late") if summary.generator.late else ""
    return f"{took}: {share}{late}"


def _result(outcome: Outcome | PgpacesError) -> str:
    from pgpaces.core.errors import PgpacesError
    from pgpaces.show.numbers import quantile, share_in_words

    error = outcome if isinstance(outcome, PgpacesError) else outcome.error or outcome.store_error
    if error is not None:
        return message(
            "trial-failed", why=error.message, hint=f" ({error.hint})" if error.hint else ""
        )
    assert not isinstance(outcome, PgpacesError)
    from pgpaces.analysis import bulk
    from pgpaces.answers.bulk import result

    summary, missed = outcome.summary, outcome.summary.missed
    workload = outcome.trial.workload
    command = bulk.of(outcome.trial, summary) if workload.about_command else None
    valid = "" if summary.validity.state == "valid" else ", invalid"
    loaded = str(result(command)) if command is not None else ""
    if loaded and workload.command_alone:
        return f"{loaded}{valid}"
    if missed is None:
        return message("nothing-was-due")
    share = f"missed {share_in_words(missed)}"
    p99 = quantile(summary.latency.p99, "above every time")
    unit = " ms" if p99[0].isdigit() else ""
    loaded += "; " if loaded else ""
    return f"{loaded}{share}, p99 {p99}{unit}{valid}"
