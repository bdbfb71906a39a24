"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces.analysis.capacity.search import CapacitySearch
from pgpaces.analysis.certainty import Certainty
from pgpaces.analysis.sequential import Pairing
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import setup
from pgpaces.spec.design import Experiment
from pgpaces.trial.strategies import Goal

_KINDS: Mapping[str, type[Goal]] = {
    "capacity": CapacitySearch,
    "comparison": Pairing,
    "certainty": Certainty,
}


def write(
    experiment: Experiment, command: str, workload_hash: str, *, goal: Goal | None = None
) -> dict[str, Any]:
    """command: as typed. workload_hash: of data and scripts. goal: of an adaptive experiment."""
    from pgpaces.trial.site import shown_source, shown_target

    targets = []
    for target in experiment.targets:
        nodes = {name: shown_target(dsn) for name, dsn in target.nodes.items()}
        targets.append(replace(target, dsn=shown_target(target.dsn), nodes=nodes))
    source = shown_source(experiment.from_database)
    stored = replace(experiment, targets=tuple(targets), from_database=source)
    document = {
        "experiment": to_builtins(stored),
        "command": command,
        "workload_hash": workload_hash,
    }
    if goal is not None:
        kind = next(name for name, cls in _KINDS.items() if isinstance(goal, cls))
        document["goal"] = {"kind": kind, **to_builtins(goal)}
    return document


def goal(document: Mapping[str, Any]) -> Goal | None:
    """The goal of an adaptive experiment; None for one with a design. Raises StoreError."""
    if (written := document.get("goal")) is None:
        return None
    try:
        values = {name: value for name, value in written.items() if name != "kind"}
        found: Goal = setup.read(_KINDS[written["kind"]], values, "a goal")
    except (ValueError, PlanError, KeyError, TypeError, AttributeError) as error:
        raise StoreError("experiment-damaged", why=str(error)) from None
    return found


def read(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a document. Raises StoreError if it is damaged."""
    try:
        return setup.read(Experiment, document["experiment"], "an experiment")
    except (ValueError, PlanError, KeyError, TypeError) as error:
        raise StoreError("experiment-damaged", why=str(error)) from None
