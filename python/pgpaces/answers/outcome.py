"""Whether a trial measured anything: transactions that succeeded, answers that arrived. Pure.

A run none of whose transactions succeeded is no measurement, and a server that stopped answering
tells nothing of what it holds while it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.answers.accumulator import own_scripts
from pgpaces.result import Counts, Finding, Trial

if TYPE_CHECKING:
    from pgpaces.answers.accumulator import Accumulator, ScriptSeconds
    from pgpaces.answers.summary import Summary

# What a sensor reads in every second in which its server answers it.
_SOURCE, _ALIVE = "sessions", "connected"
_NO_STANDBYS = ("primary", "pool", "")
_SILENCE_S = 5.0
_NOTHING = "no transaction succeeded"
# What logs of pgbench call a failure of which they say no more.
_UNTOLD = "failed"
# So many times as long as an answer took before: who still waits for one waits in vain.
_TIMES_USUAL = 3


class LoadPart(Struct, frozen=True):
    """What became of a part of a load: a script, or a background workload.

    error: what its first failure said, see `first_error`.
    """

    name: str
    counts: Counts
    error: str = ""


def succeeded(counts: Counts) -> int:
    """How many succeeded, on time or late."""
    return counts.on_time + counts.late


def first_error(failures: Iterable[str], messages: Mapping[str, str]) -> str:
    """SQLSTATE and text of the first failure of which there is one; empty without failures.

    failures: SQLSTATEs. messages: of each SQLSTATE, in the order in which they were seen.
    """
    states = set(failures)
    order = [state for state in messages if state in states] or sorted(states)
    if not order:
        return ""
    state, text = order[0], " ".join(messages.get(order[0], "").split())
    if not text:
        return "" if state == _UNTOLD else state
    # An exception of Python is called twice: by its state, and in its text.
    return text if text.startswith(f"{state}:") else f"{state}: {text}"


def nothing(counts: Counts, error: str = "") -> str:
    """Why a load measured nothing, in a sentence; empty where something succeeded."""
    due = counts.due
    if succeeded(counts):
        return ""
    if not due:
        return "nothing was due"
    found = {"failed": counts.failed, "skipped": counts.skipped, "unfinished": counts.unfinished}
    listed = ", ".join(f"{count} {name}" for name, count in found.items() if count)
    if counts.failed:
        said = f"; the first error: {error}" if error else ""
    elif counts.unfinished:
        said = "; no answer arrived to any of them"
    else:
        said = "; no client was free within the limit"
    return f"{_NOTHING}: {listed} of {due} due{said}"


def advice(counts: Counts) -> str:
    """What to do about a load that measured nothing."""
    if not counts.due:
        return (
            "run longer: until one is due, and for longer than one takes; or see what its clients"
            " wait for since the warm-up: a lock, a firewall, a disk"
        )
    if counts.failed:
        return "execute one by itself, in the same database and as the same role"
    if counts.unfinished:
        return "run for longer than one takes, or see what it waits for: a lock, a firewall, a disk"
    return "lower the rate, raise the limit, or use --policy run"


def no_measurement(summary: Summary) -> tuple[str, str] | None:
    """Why a trial is no measurement, and what to do about it; None where it is one."""
    counts = summary.counts
    error = first_error(summary.failures, summary.messages)
    text = nothing(counts, error)
    return (text, advice(counts)) if text else None


def no_trial(summaries: Iterable[Summary]) -> tuple[str, str] | None:
    """Why several trials are no measurement, by the first of them; None where one of them is."""
    found = [no_measurement(summary) for summary in summaries]
    first = found[0] if found else None
    if first is None or None in found:
        return None
    why, what = first
    if len(found) > 1:
        why = f"{_NOTHING} in {len(found)} trials; in the first {why.removeprefix(f'{_NOTHING}: ')}"
    return why, what


class Silence(Struct, frozen=True):
    """A time in which transactions were in flight and none ended, in s of the measured part.

    last: until the trial's end. elsewhere: the server answered another session in that time; None:
    none asked. usual_s: the longest time that anything took to be answered, or nothing ended,
    before the last one.
    """

    start_s: float
    end_s: float
    last: bool = False
    elsewhere: bool | None = None
    usual_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end_s - self.start_s


def silences(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Silences:
    """Those of a trial. accumulator: its intervals. own: the seconds of its own workload."""
    return Silences(_times(trial, accumulator), _unanswered(trial, accumulator, own))


def _times(trial: Trial, accumulator: Accumulator) -> tuple[Silence, ...]:
    found = accumulator.silences()
    standbys = {component.node for component in trial.plan.own} - {*_NO_STANDBYS}
    sources = {f"{node}/{_SOURCE}" for node in standbys} or {_SOURCE}
    alive = {s.second for s in trial.samples if s.source in sources and s.name == _ALIVE}
    usual_s = max([accumulator.service_ns_max / 1e9, *(end - start for start, end in found[:-1])])

    def made(start: float, end: float) -> Silence:
        # What was asked for before the end and answered behind it belongs to the last second.
        elsewhere = any(start <= second < end - 1 for second in alive) if alive else None
        return Silence(start, end, end == accumulator.ended_ns / 1e9, elsewhere, usual_s)

    return tuple(made(start, end) for start, end in found)


class Silences(Struct, frozen=True):
    """Who waited in vain: all, in these times; or some, while others were answered."""

    times: tuple[Silence, ...] = ()
    waiting: Unanswered | None = None


class Unanswered(Struct, frozen=True):
    """Transactions that wait in vain while others are answered.

    count: of the load's own. seconds: since the first of them was due, to the trial's end. usual_s:
    the longest time that anything took, from when it was due.
    """

    count: int
    seconds: float
    usual_s: float


def _unanswered(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Unanswered | None:
    """Those of a trial; none where nobody was answered, or others waited about as long."""
    left, ended_s = own.column("unfinished"), accumulator.ended_ns / 1e9
    usual_s = accumulator.latency_ns_max / 1e9
    since = ended_s - max(_SILENCE_S, _TIMES_USUAL * usual_s)
    late = left[: max(0, int(since) - own.first)]
    answered = accumulator.succeeded(int(since), int(ended_s) + 1, own_scripts(trial))
    if not late.any() or not answered.any():
        return None
    return Unanswered(int(late.sum()), ended_s - own.first - int(late.argmax()), usual_s)


def findings(
    counts: Counts,
    error: str,
    parts: Iterable[LoadPart] = (),
    background: Iterable[LoadPart] = (),
    silent: Silences | None = None,
) -> Iterator[Finding]:
    """What is to be said of a trial whose own workload has these counts and this first error.

    parts: its scripts. background: workloads that ran at the same time.
    """
    if text := nothing(counts, error):
        yield Finding("outcome", "invalid", text)
    else:
        for part in parts:
            if part.counts.due and (text := nothing(part.counts, part.error)):
                yield Finding("outcome", "warning", f"{part.name}: {text}")
        yield from _of_silences(silent, counts.unfinished) if silent else ()
    for part in background:
        if part.counts.due and (text := nothing(part.counts, part.error)):
            yield Finding("outcome", "invalid", f"background workload {part.name}: {text}")


def _of_silences(silent: Silences, unfinished: int) -> Iterable[Finding]:
    """What all of them waited for says enough."""
    return tuple(_silent(silent.times, unfinished)) or _waiting(silent.waiting)


def _waiting(waiting: Unanswered | None) -> Iterator[Finding]:
    """Of single clients that get no answer: the others hide them in every figure but one."""
    if waiting is None:
        return
    count, verb = waiting.count, "has" if waiting.count == 1 else "have"
    text = (
        f"{count} {verb} had no answer for up to {waiting.seconds:.0f} s, while others took at"
        f" most {waiting.usual_s:.2g} s: a connection that is dead, or a lock"
    )
    yield Finding("silence", "warning", text, waiting.seconds, "s")


def _silent(silent: Iterable[Silence], unfinished: int) -> Iterator[Finding]:
    """Of a server that stopped answering all that asked.

    What is answered late was answered: there it is a warning, and only where another session waited
    as well. One that never came back is an outage. A statement that takes long is neither.
    """
    for each in silent:
        if each.seconds < _SILENCE_S:
            continue
        lasted = f"{each.seconds:.0f} s"
        if not each.last:
            if each.elsewhere is False:
                text = (
                    f"no answer from the server for {lasted}, from second {each.start_s:.0f} on:"
                    " what was due meanwhile came late, or failed"
                )
                yield Finding("silence", "warning", text, each.seconds, "s")
        elif unfinished and each.seconds > _TIMES_USUAL * each.usual_s:
            if each.elsewhere:
                text = (
                    f"no transaction ended in the last {lasted}, while the server answered another"
                    " session: they wait for something in it, such as a lock"
                )
                yield Finding("silence", "warning", text, each.seconds, "s")
            else:
                text = (
                    f"no answer from the server in the last {lasted}, and {unfinished} unfinished:"
                    " the numbers are those of an outage"
                )
                yield Finding("silence", "invalid", text, each.seconds, "s")
