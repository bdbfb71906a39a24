"""Whether a trial measured anything: transactions that succeeded, answers that arrived. Pure.

A run in which no transaction succeeded is no measurement. A server that stopped answering shows
nothing of its capacity while it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.result import Counts, Trial

if TYPE_CHECKING:
    from pgpaces.analysis.accumulator import Accumulator, ScriptSeconds
    from pgpaces.analysis.digest import Digest
    from pgpaces.analysis.summary import Summary

# The sample that a sensor yields in every second in which its server answers.
_SOURCE, _ALIVE = "sessions", "connected"
_NO_STANDBYS = ("primary", "pool", "")
_SILENCE_S = 5.0
# The word of pgbench's logs for a failure without details.
_NO_DETAILS = "failed"
# A client waits in vain once it waits this many times the longest time of an answer so far.
_TIMES_USUAL = 3


class LoadPart(Struct, frozen=True):
    """The outcomes of a part of a load: a script, or a background workload.

    error: the message of its first failure, see `first_error`.
    """

    name: str
    counts: Counts
    error: str = ""


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


def nothing_measured(counts: Counts, error: str = "") -> Finding | None:
    """Why a load measured nothing; None if a transaction succeeded. error: its first one."""
    if counts.on_time + counts.late:
        return None
    if not counts.due:
        return finding("nothing-due")
    values = {"due": counts.due, "skipped": counts.skipped, "unfinished": counts.unfinished}
    if counts.failed == counts.due:
        return finding("all-failed", failed=counts.failed, error=error or None)
    if counts.failed:
        return finding("none-succeeded", failed=counts.failed, error=error or None, **values)
    if counts.unfinished:
        return finding("no-answer", **values)
    return finding("all-skipped", due=counts.due, skipped=counts.skipped)


def given_up(aborted: int, clients: int, *, error: str) -> Iterator[Finding]:
    """A finding about clients that an error ended. error: the first one, with its client."""
    text = " ".join(error.split())
    if aborted == clients > 0:
        yield finding("all-clients-gave-up", clients=clients, error=text)
    elif aborted:
        yield finding("clients-gave-up", aborted=aborted, clients=clients, error=text)


def all_gave_up(findings: Iterable[Finding]) -> Finding | None:
    """The finding that errors ended all clients of a load; None for any other load."""
    return next((each for each in findings if each.name == "all-clients-gave-up"), None)


def no_measurement(summary: Summary) -> Finding | None:
    """Why a trial measured nothing; None if it measured something."""
    if not summary.counts.due and (gave_up := all_gave_up(summary.validity.findings)):
        return gave_up
    return nothing_measured(summary.counts, first_error(summary.failures, summary.messages))


def no_trial(digests: Iterable[Digest]) -> Finding | None:
    """Why the first of several trials measured nothing; None if one measured something.

    Those that were interrupted are neither.
    """
    ended = (each for each in digests if each.trial.state != "interrupted")
    reasons = [no_measurement(digest.summary) for digest in ended]
    return reasons[0] if reasons and None not in reasons else None


def silences(
    trial: Trial, accumulator: Accumulator, own: ScriptSeconds, *, unfinished: int
) -> list[Finding]:
    """Findings about a server that stopped answering all clients, or else some of them.

    Where it answered late, that is a warning, and only if another session had no answer either. A
    server that did not answer again is an outage. A statement that takes long is neither.
    own: the trial's own workload. unfinished: of its transactions that the answer counts.
    """
    standbys = {component.node for component in trial.setup.own} - {*_NO_STANDBYS}
    sources = {f"{node}/{_SOURCE}" for node in standbys} or {_SOURCE}
    every = (s.seconds for s in trial.samples if s.source in sources and s.name == _ALIVE)
    alive = {second for seconds in every for second in seconds}
    ended_s, usual_s = accumulator.ended_ns / 1e9, accumulator.service_ns_max / 1e9
    found = []
    for start_s, end_s in accumulator.silences():
        silent_s = end_s - start_s
        # A query sent before the end and answered after it belongs to the last second.
        answered = any(start_s <= second < end_s - 1 for second in alive)
        long, last = silent_s >= _SILENCE_S, end_s == ended_s
        if long and not last and alive and not answered:
            found.append(finding("server-silent", silent_s=silent_s, start_s=start_s))
        elif long and last and unfinished and silent_s > _TIMES_USUAL * usual_s:
            if answered:
                found.append(finding("waiting-at-the-end", silent_s=silent_s))
            else:
                gone = finding("server-gone-silent", silent_s=silent_s, unfinished=unfinished)
                found.append(gone)
        usual_s = max(usual_s, silent_s)
    # A silence of the whole server explains single clients that wait.
    return found or [*_unanswered(accumulator, own, own_scripts(trial))]


def _unanswered(accumulator: Accumulator, own: ScriptSeconds, scripts: range) -> Iterator[Finding]:
    """Single clients that get no answer while others do: all figures but one average them away."""
    left, ended_s = own.column("unfinished"), accumulator.ended_ns / 1e9
    usual_s = accumulator.latency_ns_max / 1e9
    since = ended_s - max(_SILENCE_S, _TIMES_USUAL * usual_s)
    late = left[: max(0, int(since) - own.first)]
    if late.any() and accumulator.succeeded(int(since), int(ended_s) + 1, scripts).any():
        waited_s = ended_s - own.first - int(late.argmax())
        yield finding("unanswered", count=int(late.sum()), waited_s=waited_s, usual_s=usual_s)
