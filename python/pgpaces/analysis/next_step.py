"""The command to continue with: the run once more, or an experiment with its load. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pgpaces.analysis.accumulator import by_functions
from pgpaces.core import causes
from pgpaces.core.findings import filled
from pgpaces.spec.result import Trial
from pgpaces.spec.setup import Setup

# Fewer missed transactions than this have no attribution.
MISSED_MIN = 10
# Serialization failures and deadlocks, which the engine can retry.
_RETRIED = ("40001", "40P01")
_NONE: Mapping[str, int] = {}


class NextStep(Struct, frozen=True):
    advice: str
    command: str
    question: str


def threads(setup: Setup) -> int:
    return max(1, (setup.threads or 1) // max(1, len(setup.generators)))


def repeatable(trial: Trial) -> bool:
    """Whether its spec names what it ran, unlike the standard input and functions of Python."""
    return any(name in trial.spec for name in ("workload", "files", "command"))


def in_sweep(trial: Trial) -> bool:
    """Whether an experiment can have its load: no --on-connect, no --own, no command."""
    spec = trial.spec
    return not ("own" in spec or "command" in spec or any(n[:10] == "on_connect" for n in spec))


def multiples(trial: Trial, *times: float) -> str:
    """Multiples of the number of clients, or of users for a load of users, as levels."""
    now = trial.setup.own_clients or 1
    return ",".join(map(str, sorted({max(1, round(now * each)) for each in times})))


def clients(trial: Trial) -> str:
    return "--users" if trial.plan.load.model == "paced" else "--clients"


def next_step_for(key: str, trial: Trial, failures: Mapping[str, int] = _NONE) -> NextStep:
    """What to do about a cause that a trial shows. failures: its failed, by SQLSTATE.

    key: of a cause, or of a form of one.
    """
    retried = sum(count for state, count in failures.items() if state in _RETRIED)
    if key == "failed" and 2 * retried > sum(failures.values()) and not by_functions(trial):
        key = "conflicts"
    load, each = trial.plan.load, threads(trial.setup)
    rates = ",".join(f"{(load.rate or 1.0) * share:g}/s" for share in (0.5, 0.75, 1))
    of_rate = load.model == "open"
    values: dict[str, Any] = {
        "run": trial.id[-8:],
        "clients": clients(trial),
        "fewer": multiples(trial, 0.5, 1, 2),
        "more": multiples(trial, 1, 2, 4),
        "load": "--rate" if of_rate else clients(trial),
        "less": rates if of_rate else multiples(trial, 0.5, 0.75, 1),
        "threads": f"{each},{2 * each},{4 * each}",
    }
    entry = causes.remedy(key)
    name, changed = entry.next, filled(entry.options, values)
    if name == "sweep" and not in_sweep(trial):
        name, changed = "run", ""
    if name == "run" and "command" in trial.spec:
        name = "load"
    run = values["run"] if name == "show" else f"--like {values['run']}"
    command = f"pgpaces {name} {run} {changed}".rstrip()
    return NextStep(filled(entry.advice, values), command, entry.question)
