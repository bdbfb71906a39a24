"""Progress on stderr: a line that is rewritten on a terminal, else lines now and then."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import threading
import time
from collections import Counter, deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from pgpaces.experiment.listener import Listener, SweepListener
from pgpaces.report import escape

if TYPE_CHECKING:
    from types import ModuleType

    from pgpaces.design import Slot
    from pgpaces.errors import PgpacesError
    from pgpaces.experiment.listener import Progress
    from pgpaces.experiment.trial import Outcome
    from pgpaces.record import Interval
    from pgpaces.result import Trial
    from pgpaces.times import Times


# The width of the bar of a trial, and the number of lines in its picture.
_BAR, _PICTURE = 12, 16
# So many lines of clients that differ in numbers alone are told.
_ALIKE_MAX = 5
_DIGITS = re.compile(r"\d+")
# What a stage begins with that must not be written over.
WARNING = "warning: "


class Teller:
    """Lines on stderr; on a terminal one that is rewritten. Machines may tell from threads."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self._open = False
        self._told: Counter[str] = Counter()
        # A signal may come while this very thread is telling something.
        self._lock = threading.RLock()

    def tell(self, text: str, *, rewrite: bool = False, whole: bool = False) -> None:
        """Writes a line, over the last one if that was to be rewritten. whole: never cut."""
        # Whoever closes stderr wants to hear no more; the run goes on.
        with contextlib.suppress(OSError), self._lock:
            self._put(text, rewrite=rewrite, whole=whole)

    def _put(self, text: str, *, rewrite: bool, whole: bool) -> None:
        text = escape.lines(text) if whole else escape.line(text)
        if not self.terminal:
            click.echo(text, err=True)
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
        shown = text if whole else text[:width]
        click.echo(f"\r\x1b[K{shown}" + ("" if rewrite else "\n"), err=True, nl=False)
        self._open = rewrite

    def still_new(self, text: str) -> bool:
        """Whether lines like this, but for their numbers, were told only a few times so far."""
        like = _DIGITS.sub("0", text)
        with self._lock:
            self._told[like] += 1
            return self._told[like] <= _ALIKE_MAX

    def done(self) -> None:
        """Leaves the line that was being rewritten, and says what was not told each time."""
        if self._open:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._open = False
        for like, times in self._told.items():
            if times > _ALIKE_MAX:
                self.tell(f"pgpaces: {times - _ALIKE_MAX} more like: {like}", whole=True)
        self._told.clear()


class LiveLine:
    """What a load does now: counts since the last line, and p95 by the line for a picture.

    whole_s: how long it takes with its warm-up; None where it ends by a count.
    """

    def __init__(self, whole_s: float | None) -> None:
        self._whole_s = whole_s
        self._passed = 0
        self._stage = ""
        self._p95: deque[float | None] = deque(maxlen=_PICTURE)
        self._clear()

    def _clear(self) -> None:
        self.seconds = self._due = self._missed = self._failed = self._succeeded = 0
        self._times: list[Times] = []

    def add(self, interval: Interval) -> None:
        """Counts a second."""
        for tally in interval.tallies:
            failed = sum(tally.failed.values())
            self._due += tally.due
            self._failed += failed
            self._missed += tally.late + tally.skipped + failed + tally.unfinished
            self._succeeded += tally.latency.count
            self._times.append(tally.latency)
        self.seconds += 1
        self._passed += 1
        self._stage = "warm-up" if interval.second < 0 else f"{interval.second + 1} s"

    def text(self, *, terminal: bool) -> str:
        """The line; on a terminal with a bar, the time that is left and a picture."""
        from pgpaces.report.numbers import clock, milliseconds, percent, rate, sparkline
        from pgpaces.times import merge, values_at_ranks

        times = merge(self._times)
        [ns] = values_at_ranks(times, (math.ceil(0.95 * times.count),)) if times.count else [None]
        self._p95.append(None if ns is None else ns / 1e6)
        p95 = milliseconds(self._p95[-1], "–")
        done = f"{rate(self._succeeded / self.seconds)}/s  p95 {p95} ms"
        share = percent(self._missed / self._due) if self._due else "0.0"
        missed = f"missed {share}%" + (f"  {self._failed} failed" if self._failed else "")
        self._clear()
        if not terminal:
            return f"{self._stage}: {done}  {missed}"
        bar, left = "", ""
        if self._whole_s:
            full = round(_BAR * min(1.0, self._passed / self._whole_s))
            bar = f"{'█' * full}{'░' * (_BAR - full)} "
            left = f"{clock(max(0.0, self._whole_s - self._passed))} left  "
        return f"{bar}{left}{done}  {missed}  {sparkline(tuple(self._p95))}"


class TrialProgress(Listener):
    """Tells on stderr what happens: a line that is rewritten on a terminal, else now and then."""

    def __init__(
        self,
        every_s: int | None,
        teller: Teller | None = None,
        prefix: str = "",
        behind: str = "",
        *,
        quiet: bool | None = None,
    ) -> None:
        self._teller = teller or Teller()
        self._quiet = every_s == 0 if quiet is None else quiet
        self._prefix, self._behind = prefix, behind
        self._every_s = every_s if every_s is not None else (1 if self._teller.terminal else 5)
        self._live = LiveLine(None)
        self._by_command = False
        self._last_say = 0.0
        self._last_text = ""

    def say(self, text: str) -> None:
        """A stage; repeated ones only every 5 s where there is no terminal. A warning stays."""
        if text.startswith(WARNING) and not self._quiet:
            self._teller.tell(f"{self._prefix}{text}", whole=True)
            return
        if not self._every_s:
            return
        now, stage = time.monotonic(), text.split(",", maxsplit=1)[0]
        if (
            self._teller.terminal
            or now - self._last_say >= 5
            or text.split(",", maxsplit=1)[0] != self._last_text
        ):
            self._teller.tell(f"{self._prefix}{text}", rewrite=True)
            self._last_say, self._last_text = now, stage

    def started(self, trial: Trial, connect_ns: int) -> None:
        """Says what runs."""
        from pgpaces.answers import bulk

        self._by_command = bulk.alone(trial)
        plan = trial.plan
        whole_ns = plan.duration_ns and plan.warmup_ns + plan.duration_ns
        self._live = LiveLine(whole_ns / 1e9 if whole_ns else None)
        if not self._every_s or self._prefix:
            return
        if self._by_command:
            self._teller.tell(f"running {trial.workload.name}")
            return
        end = f"{(plan.warmup_ns + (plan.duration_ns or 0)) / 1e9:g} s"
        count = f"{plan.transactions} transactions each"
        self._teller.tell(
            f"running {trial.workload.name}: {plan.load_text},"
            f" {plan.own_clients} clients, {end if plan.duration_ns else count}",
        )

    def interval(self, interval: Interval) -> None:
        """Counts, and says so every few seconds; what clients say comes at once."""
        for level, text in interval.lines:
            prefix = {"plain": "", "info": "pgpaces: "}.get(level, f"pgpaces: {level}: ")
            # What clients print by \\echo is the script's own; of the rest enough is enough.
            if level == "plain" or self._teller.still_new(text):
                self._teller.tell(f"{prefix}{text}", whole=True)
        # Of a command its last line says more; it comes as a stage.
        if self._by_command or not self._every_s:
            return
        self._live.add(interval)
        if self._live.seconds >= self._every_s:
            text = self._live.text(terminal=self._teller.terminal and not self._prefix)
            self._teller.tell(f"{self._prefix}{text}{self._behind}", rewrite=True)

    def stopping(self, count: int) -> None:
        """Says what Ctrl-C does."""
        if count == 1:
            what = "the command is asked to end" if self._by_command else "waiting for what was due"
            self._teller.tell(f"stopping: {what} (again to end at once)")

    def done(self) -> None:
        """Leaves the line that was being rewritten."""
        self._teller.done()


class SweepProgress(SweepListener):
    """Tells how an experiment goes: a line for each trial that has ended, with what it found."""

    def __init__(self, every_s: int | None) -> None:
        self.teller = Teller()
        self._every_s = (1 if self.teller.terminal else 0) if every_s is None else every_s
        self._quiet = every_s == 0
        self._progress: Progress | None = None
        self._stopping = False
        self._why: dict[str, str] = {}

    def trial(self, machine: str, slot: Slot, attempt: int, progress: Progress) -> Listener:
        """What the trial says goes into the line that is rewritten, with where it stands."""
        self._progress = progress
        at = f"{machine}: " if machine else ""
        again = ", again" if attempt > 1 else ""
        searched = _searched(slot)
        prefix = f"{at}{searched or f'{progress.place()}{again} {slot.cell}'}"
        prefix += f"{again}: " if searched else ": "
        why = self._why.get(machine, "")
        behind = f"; {why}" if why else ""
        return TrialProgress(self._every_s, self.teller, prefix, behind, quiet=self._quiet)

    def done(self, machine: str, slot: Slot, found: Outcome | PgpacesError) -> None:
        """A line that stays."""
        if self._quiet or self._progress is None:
            return
        from pgpaces.errors import PgpacesError
        from pgpaces.report.numbers import clock

        progress = self._progress
        at = f"{machine}: " if machine else ""
        searched = _searched(slot)
        if searched and not (self._stopping and isinstance(found, PgpacesError)):
            self.teller.tell(f"{at}{searched}{_of_search(found)}", whole=True)
            return
        seconds = progress.seconds_left()
        left = f"; {clock(seconds)} left, until {_at(seconds)}" if seconds else ""
        # What our own end broke off is nothing that the user has to mend.
        text = "not begun" if self._stopping and isinstance(found, PgpacesError) else _found(found)
        self.teller.tell(f"{at}{progress.place()} {slot.cell}: {text}{left}", whole=True)

    def due(self, machine: str, slot: Slot, why: str) -> None:
        """What comes next and why: on a terminal in the line that is rewritten while it runs."""
        self._why[machine] = why
        if not self._quiet:
            at = f"{machine}: " if machine else ""
            text = f"{at}{_searched(slot) or slot.cell}: {why}"
            self.teller.tell(text, rewrite=True, whole=not self.teller.terminal)

    def away(self, machine: str, error: PgpacesError, trials: int) -> None:
        """Why a part is left out."""
        where = machine or "this machine"
        # Of trials that are chosen as it goes nobody knows how many there were to be.
        count = f" ({trials})" if trials else ""
        self.teller.tell(
            f"{where}: no trial could reach the server, the rest of its trials is left out{count}:"
            f" {error.message}",
            whole=True,
        )

    def stopping(self, count: int) -> None:
        """Says what Ctrl-C does."""
        self._stopping = True
        if count == 1:
            self.teller.tell("stopping: ending the trials that run (again to end at once)")


def _at(seconds: float) -> str:
    """The time of day in so many seconds, with the day where it is another one."""
    now = datetime.now().astimezone()
    then = now + timedelta(seconds=seconds)
    return then.strftime("%H:%M" if then.date() == now.date() else "%a %H:%M")


def _searched(slot: Slot) -> str | None:
    """What a trial of a search for a capacity is called; None for another one."""
    name: str | None = _search().trial_name(slot.cell)
    return name


def _of_search(found: Outcome | PgpacesError) -> str:
    """How long a trial of a search took and what missed, behind its load."""
    from pgpaces.errors import PgpacesError

    if isinstance(found, PgpacesError) or found.error or found.store_error:
        return f": {_found(found)}"
    result: str = _search().trial_result(found.trial, found.summary)
    return result


def _search() -> ModuleType:
    from pgpaces.questions.capacity import progress

    return progress


def _found(found: Outcome | PgpacesError) -> str:
    """What came out of a trial, in a few words."""
    from pgpaces.errors import PgpacesError
    from pgpaces.report.numbers import milliseconds, percent

    error = found if isinstance(found, PgpacesError) else found.error or found.store_error
    if error is not None:
        return f"failed: {error.message}" + (f" ({error.hint})" if error.hint else "")
    assert not isinstance(found, PgpacesError)
    from pgpaces.answers import bulk
    from pgpaces.questions.bulk.words import sentence

    summary, missed = found.summary, found.summary.missed
    did = bulk.of(found.trial, summary) if bulk.about_command(found.trial) else None
    valid = "" if summary.validity.state == "valid" else ", not valid"
    if did is not None and bulk.alone(found.trial):
        return f"{sentence(did)}{valid}"
    loaded = f"{sentence(did)}; " if did is not None else ""
    if missed is None:
        return "nothing was due"
    share = f"missed {percent(missed.value)} % ({percent(missed.low)} to {percent(missed.high)})"
    p99 = summary.latency.p99
    shown = f"{milliseconds(p99.value, '-')} ms" if p99 else "-"
    if p99 and math.isinf(p99.value):
        shown = "above every time"
    return f"{loaded}{share}, p99 {shown}{valid}"
