"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pgpaces import facts
from pgpaces.design import Experiment, Target
from pgpaces.errors import PlanError, StoreError
from pgpaces.experiment import targets as addresses

if TYPE_CHECKING:
    from pgpaces.experiment.strategies import Goal


class DocumentExtras(Struct, frozen=True):
    """What a document holds beside the experiment.

    command: what was typed to run it. workload_hash: of data and scripts. goal: what trials are
    chosen for, where they are not those of the design.
    """

    command: str
    workload_hash: str
    goal: Goal | None = None


def write(experiment: Experiment, beside: DocumentExtras) -> dict[str, Any]:
    """The document."""
    from pgpaces.experiment import strategies

    targets = tuple(_shown(target) for target in experiment.targets)
    source = addresses.source(experiment.from_database)
    stored = replace(experiment, targets=targets, from_database=source)
    found = {"command": beside.command, "workload_hash": beside.workload_hash}
    goal = {} if beside.goal is None else {"goal": strategies.write(beside.goal)}
    return {"experiment": to_builtins(stored), **found, **goal}


def goal(document: Mapping[str, Any]) -> Goal | None:
    """What trials are chosen for; None for those of a design. Raises StoreError."""
    written = document.get("goal")
    if written is None:
        return None
    from pgpaces.experiment import strategies

    return strategies.read(written)


def _shown(target: Target) -> Target:
    nodes = {name: addresses.dsn(dsn) for name, dsn in target.nodes.items()}
    return replace(target, dsn=addresses.dsn(target.dsn), nodes=nodes)


def read(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a document. Raises StoreError where it cannot be one."""
    try:
        written = {**document["experiment"]}
        written["targets"] = [_priced(target) for target in written.get("targets", ())]
        found = facts.read(Experiment, written, "an experiment")
    except (ValueError, PlanError, KeyError, TypeError) as error:
        raise StoreError(f"the stored experiment is damaged: {error}") from None
    if folder := document.get("data_dir"):  # of one that was stored before it was a level
        fixed = {**found.design.fixed, "data_dir": str(folder)}
        return replace(found, design=replace(found.design, fixed=fixed))
    return found


def _priced(target: Mapping[str, Any]) -> dict[str, Any]:
    """A target as it is stored now; before there were costs it had a price an hour."""
    found = {**target}
    price, currency = found.pop("price_per_h", None), found.pop("currency", "USD")
    if price is not None:
        found["costs"] = {"price_per_h": price, "currency": currency}
    return found
