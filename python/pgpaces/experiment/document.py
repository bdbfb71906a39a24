"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces import facts
from pgpaces.design import Experiment, Target
from pgpaces.errors import PlanError, StoreError
from pgpaces.experiment import targets as addresses

if TYPE_CHECKING:
    from pgpaces.experiment.strategies import Goal


def write(
    experiment: Experiment, command: str, workload_hash: str, goal: Goal | None = None
) -> dict[str, Any]:
    """The document.

    command: as typed. workload_hash: of data and scripts. goal: of an adaptive experiment.
    """
    from pgpaces.experiment import strategies

    targets = tuple(_shown(target) for target in experiment.targets)
    source = addresses.source(experiment.from_database)
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
    from pgpaces.experiment import strategies

    return strategies.read(written)


def _shown(target: Target) -> Target:
    nodes = {name: addresses.dsn(dsn) for name, dsn in target.nodes.items()}
    return replace(target, dsn=addresses.dsn(target.dsn), nodes=nodes)


def read(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a document. Raises StoreError if it is damaged."""
    try:
        written = {**document["experiment"]}
        written["targets"] = [_priced(target) for target in written.get("targets", ())]
        experiment = facts.read(Experiment, written, "an experiment")
    except (ValueError, PlanError, KeyError, TypeError) as error:
        raise StoreError(f"the stored experiment is damaged: {error}") from None
    if folder := document.get("data_dir"):  # of an earlier version, in which it was no level
        fixed = {**experiment.design.fixed, "data_dir": str(folder)}
        return replace(experiment, design=replace(experiment.design, fixed=fixed))
    return experiment


def _priced(target: Mapping[str, Any]) -> dict[str, Any]:
    """A target as it is stored now; earlier versions stored a price per hour instead of costs."""
    written = {**target}
    price, currency = written.pop("price_per_h", None), written.pop("currency", "USD")
    if price is not None:
        written["costs"] = {"price_per_h": price, "currency": currency}
    return written
