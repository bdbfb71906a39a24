"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import setup
from pgpaces.spec.design import Experiment
from pgpaces.spec.migration import Rehearsal
from pgpaces.trial.strategies import Goal


class StoredExperiment(Struct, frozen=True, omit_defaults=True):
    """command: as typed. workload_hash: of data and scripts.

    goal: of an adaptive experiment, or the migration whose rehearsal it is.
    """

    experiment: Experiment
    command: str
    workload_hash: str
    goal: Goal | Rehearsal | None = None


def write(
    experiment: Experiment,
    command: str,
    workload_hash: str,
    *,
    goal: Goal | Rehearsal | None = None,
) -> dict[str, Any]:
    from pgpaces.trial.target_server import (
        shown_source,
        shown_target,
    )  # commands that only read start sooner

    targets = []
    for target in experiment.targets:
        nodes = {name: shown_target(dsn) for name, dsn in target.nodes.items()}
        targets.append(replace(target, dsn=shown_target(target.dsn), nodes=nodes))
    source = shown_source(experiment.from_database)
    stored = replace(experiment, targets=tuple(targets), from_database=source)
    document: dict[str, Any] = to_builtins(StoredExperiment(stored, command, workload_hash, goal))
    return document


def read(document: Mapping[str, Any]) -> StoredExperiment:
    """Raises StoreError if the document is damaged."""
    found: StoredExperiment = _read(StoredExperiment, document)
    return found


def goal(document: Mapping[str, Any]) -> Goal | Rehearsal | None:
    """The goal alone, also of a document whose other parts are damaged. Raises StoreError."""
    found: Goal | Rehearsal | None = _read(Goal | Rehearsal | None, document.get("goal"))
    return found


def _read(kind: Any, value: object) -> Any:
    try:
        return setup.read(kind, value, "an experiment")
    except (ValueError, PlanError) as error:
        raise StoreError("experiment-damaged", why=str(error)) from None
