"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, StoreError
from pgpaces.spec import facts
from pgpaces.spec.design import Experiment, Target

if TYPE_CHECKING:
    from pgpaces.trial.strategies import Goal


def write(
    experiment: Experiment, command: str, workload_hash: str, *, goal: Goal | None = None
) -> dict[str, Any]:
    """command: as typed. workload_hash: of data and scripts. goal: of an adaptive experiment."""
    from pgpaces.trial import strategies
    from pgpaces.trial.site import shown_source

    targets = tuple(_shown(target) for target in experiment.targets)
    source = shown_source(experiment.from_database)
    stored = replace(experiment, targets=targets, from_database=source)
    document = {
        "experiment": to_builtins(stored),
        "command": command,
        "workload_hash": workload_hash,
    }
    return document | ({} if goal is None else {"goal": strategies.write(goal)})


def goal(document: Mapping[str, Any]) -> Goal | None:
    """The goal of an adaptive experiment; None for one with a design. Raises StoreError."""
    written = document.get("goal")
    if written is None:
        return None
    from pgpaces.trial import strategies

    return strategies.read(written)


def _shown(target: Target) -> Target:
    from pgpaces.trial.site import shown_dsn

    nodes = {name: shown_dsn(dsn) for name, dsn in target.nodes.items()}
    return replace(target, dsn=shown_dsn(target.dsn), nodes=nodes)


def read(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a document. Raises StoreError if it is damaged."""
    try:
        return facts.read(Experiment, document["experiment"], "an experiment")
    except (ValueError, PlanError, KeyError, TypeError) as error:
        raise StoreError("experiment-damaged", why=str(error)) from None
