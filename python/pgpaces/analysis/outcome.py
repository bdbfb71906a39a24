"""Whether a trial measured anything: transactions that succeeded, answers that arrived. Pure.

A run in which no transaction succeeded is no measurement. A server that stopped answering shows
nothing of its capacity while it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.spec.result import Counts, Finding, Trial

if TYPE_CHECKING:
    from pgpaces.analysis.accumulator import Accumulator, ScriptSeconds
    from pgpaces.analysis.digest import Digest
    from pgpaces.analysis.summary import Summary
    from pgpaces.spec.facts import PlanFacts

# The sample that a sensor yields in every second in which its server answers.
_SOURCE, _ALIVE = "sessions", "connected"
_NO_STANDBYS = ("primary", "pool", "")
_SILENCE_S = 5.0
_NOTHING = "no transaction succeeded"
# The word of pgbench's logs for a failure without details.
_NO_DETAILS = "failed"
_GAVE_UP = "clients"
_ALONE = "execute one by itself, in the same database and as the same role"
# A client waits in vain once it waits this many times the longest time of an answer so far.
_TIMES_USUAL = 3


class LoadPart(Struct, frozen=True):
    """The outcomes of a part of a load: a script, or a background workload.

    error: the message of its first failure, see `first_error`.
    """

    name: str
    counts: Counts
    error: str = ""


def succeeded(counts: Counts) -> int:
    return counts.on_time + counts.late


def first_error(failures: Iterable[str], messages: Mapping[str, str]) -> str:
    """SQLSTATE and message of the first failure that has a message; empty without failures.

    failures: SQLSTATEs. messages: by SQLSTATE, in order of occurrence.
    """
    states = set(failures)
    order = [state for state in messages if state in states] or sorted(states)
    if not order:
        return ""
    state, text = order[0], " ".join(messages.get(order[0], "").split())
    if not text:
        return "" if state == _NO_DETAILS else state
    # The message of a Python exception already begins with its name, which is its state.
    return text if text.startswith(f"{state}:") else f"{state}: {text}"


def nothing(counts: Counts, error: str = "") -> str:
    """A sentence why a load measured nothing; empty where a transaction succeeded."""
    due = counts.due
    if succeeded(counts):
        return ""
    if not due:
        return "nothing was due"
    outcomes = {name: getattr(counts, name) for name in ("failed", "skipped", "unfinished")}
    listed = ", ".join(f"{count:,} {name}" for name, count in outcomes.items() if count)
    if counts.failed:
        reason = f"; the first error: {error}" if error else ""
    elif counts.unfinished:
        reason = "; no answer arrived to any of them"
    else:
        reason = "; no client was free within the limit"
    return f"{_NOTHING}: {listed} of {due:,} due{reason}"


def advice(counts: Counts) -> str:
    if not counts.due:
        return (
            "run longer: until one is due, and for longer than one takes; or see what its clients"
            " wait for since the warm-up: a lock, a firewall, a disk"
        )
    if counts.failed:
        return _ALONE
    if counts.unfinished:
        return "run for longer than one takes, or see what it waits for: a lock, a firewall, a disk"
    return "lower the rate, raise the limit, or use --policy run"


def given_up(aborted: int, plan: PlanFacts, clients: int, *, error: str) -> Iterator[Finding]:
    """A finding about clients that an error ended. error: the first one, with its client."""
    if not aborted:
        return
    every = aborted == clients
    who = f"all {clients} clients" if every else f"{aborted} of {clients} clients"
    who = "the only client" if clients == 1 else who
    stops = not (plan.continue_on_error or plan.exit_on_abort)
    option = " (--on-error stop-client)" if stops else ""
    text = f"{who} gave up after an error{option}: {' '.join(error.split())}"
    yield Finding(_GAVE_UP, "invalid" if every else "warning", text, aborted)


def all_gave_up(findings: Iterable[Finding]) -> str:
    """Why a load ended: errors ended all its clients; empty for any other."""
    every = (f.text for f in findings if f.source == _GAVE_UP and f.severity == "invalid")
    return next(every, "")


def no_measurement(summary: Summary) -> tuple[str, str] | None:
    """Why a trial is no measurement, and what to do about it; None where it is one."""
    if not summary.counts.due and (text := all_gave_up(summary.validity.findings)):
        return text, _ALONE
    text = nothing(summary.counts, first_error(summary.failures, summary.messages))
    return (text, advice(summary.counts)) if text else None


def no_trial(digests: Iterable[Digest]) -> tuple[str, str] | None:
    """Why several trials are no measurement, by the first of them; None where one of them is.

    Those that were interrupted are neither.
    """
    ended = (each for each in digests if each.trial.state != "interrupted")
    reasons = [no_measurement(digest.summary) for digest in ended]
    first = reasons[0] if reasons else None
    if first is None or None in reasons:
        return None
    why, what = first
    if (n := len(reasons)) > 1:
        why = f"{_NOTHING} in {n} trials; in the first {why.removeprefix(f'{_NOTHING}: ')}"
    return why, what


class Silence(Struct, frozen=True):
    """A time in which transactions were in flight and none ended, in s of the measured part.

    last: it lasted until the trial's end. elsewhere: the server answered another session in that
    time; None where no other session sent a query. usual_s: the longest service time of the trial,
    or the longest silence before the last one.
    """

    start_s: float
    end_s: float
    last: bool = False
    elsewhere: bool | None = None
    usual_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def silences(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Silences:
    spans = accumulator.silences()
    standbys = {component.node for component in trial.plan.own} - {*_NO_STANDBYS}
    sources = {f"{node}/{_SOURCE}" for node in standbys} or {_SOURCE}
    every = (s.seconds for s in trial.samples if s.source in sources and s.name == _ALIVE)
    alive = {second for seconds in every for second in seconds}
    usual_s = max([accumulator.service_ns_max / 1e9, *(end - start for start, end in spans[:-1])])

    def silence(start: float, end: float) -> Silence:
        # A query sent before the end and answered after it belongs to the last second.
        elsewhere = any(start <= second < end - 1 for second in alive) if alive else None
        return Silence(start, end, end == accumulator.ended_ns / 1e9, elsewhere, usual_s)

    times = tuple(silence(*span) for span in spans)
    return Silences(times, _unanswered(trial, accumulator, own))


class Silences(Struct, frozen=True):
    """Clients that waited in vain: all, in these times; or some, while others were answered."""

    times: tuple[Silence, ...] = ()
    waiting: Unanswered | None = None


class Unanswered(Struct, frozen=True):
    """Transactions that wait in vain while others are answered.

    count: transactions of the trial's own workload. seconds: from the due time of the first of them
    to the trial's end. usual_s: the longest latency of the trial.
    """

    count: int
    seconds: float
    usual_s: float


def _unanswered(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Unanswered | None:
    """Unanswered transactions; None where no other was answered, or others waited about as long."""
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
    *,
    background: Iterable[LoadPart] = (),
    silent: Silences | None = None,
) -> Iterator[Finding]:
    """Findings about a trial whose own workload has these counts and this first error.

    parts: its scripts. background: its background workloads.
    """
    if text := nothing(counts, error):
        yield Finding("outcome", "invalid", text)
    else:
        for part in parts:
            if part.counts.due and (text := nothing(part.counts, part.error)):
                yield Finding("outcome", "warning", f"{part.name}: {text}")
        if silent:  # A silence of the whole server explains single clients that wait.
            yield from list(_silent(silent.times, counts.unfinished)) or _waiting(silent.waiting)
    for part in background:
        if part.counts.due and (text := nothing(part.counts, part.error)):
            yield Finding("outcome", "invalid", f"background workload {part.name}: {text}")


def _waiting(waiting: Unanswered | None) -> Iterator[Finding]:
    """Single clients that get no answer: all figures but one average them away."""
    if waiting is None:
        return
    count, verb = waiting.count, "has" if waiting.count == 1 else "have"
    text = (
        f"{count} {verb} had no answer for up to {waiting.seconds:.0f} s, while others took at"
        f" most {waiting.usual_s:.2g} s: a connection that is dead, or a lock"
    )
    yield Finding("silence", "warning", text, waiting.seconds, "s")


def _silent(silent: Iterable[Silence], unfinished: int) -> Iterator[Finding]:
    """A server that stopped answering all clients.

    Where it answered late, that is a warning, and only if another session had no answer either. A
    server that did not answer again is an outage. A statement that takes long is neither.
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
