"""What is to be run: an order, and the requests of its trials made from it. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from pgpaces import levels, trust, workload
from pgpaces.costs import Costs
from pgpaces.design import HERE, ROLE, Experiment, Slot, Target
from pgpaces.errors import PlanError
from pgpaces.experiment.request import OnStoreError, Request, asked_for
from pgpaces.experiment.site import for_driver, source_database
from pgpaces.experiment.strategies import Goal
from pgpaces.generators import engine as generator
from pgpaces.locality import is_local
from pgpaces.plan import TargetPlan
from pgpaces.redaction import Redacted
from pgpaces.result import Place
from pgpaces.units import digits

# Options of managed servers, and what to do instead for a target.
_MANAGED = {
    "server": "choose one",
    "data_dir": "choose one",
    "tls": "say sslmode in the target",
    "standbys": "name theirs as nodes of the target",
}


class Order(Struct, frozen=True):
    """An experiment that is to be run, or resumed.

    store: where results go; None for the default. resume: the id of the one to go on with.
    command: what was typed, for whoever wants to run it again. costs: of this machine. goal: what
    trials are chosen for as it goes; without one they are those of the design. consent: whether the
    folders of workloads may execute programs.
    """

    experiment: Experiment
    store: str | Path | None = None
    resume: str | None = None
    on_store_error: OnStoreError = "continue"
    command: str = ""
    costs: Costs | None = None
    goal: Goal | None = None
    consent: trust.Consent = trust.refuse


def _workload(experiment: Experiment, consent: trust.Consent) -> workload.Workload:
    scripts = tuple(trust.script(*_weighted(file), consent) for file in experiment.files)
    if experiment.workload is None:
        return workload.of_scripts(experiment.name, scripts)
    base = trust.find(experiment.workload, consent)
    return replace(base, scripts=scripts) if scripts else base


def _weighted(file: str) -> tuple[str, int]:
    path, at, weight = file.rpartition("@")
    number = digits(weight) if at else None
    return (file, 1) if number is None else (path, number)


class _Resolved(Redacted, frozen=True):
    """A target with everything that the environment says of it; machine: HERE if it is this one."""

    REDACTED: ClassVar = ("keywords",)
    target: Target
    keywords: Mapping[str, str]
    machine: str


def _resolved(target: Target) -> _Resolved:
    keywords = for_driver(generator.resolve(target.dsn))
    host = keywords.get("hostaddr") or keywords.get("host", "")
    return _Resolved(target, keywords, HERE if is_local(keywords) else host)


class Builder(Redacted, frozen=True):
    """Makes the requests of an experiment's trials."""

    REDACTED: ClassVar = ("targets",)
    order: Order
    base: workload.Workload
    targets: Mapping[str, _Resolved]

    @classmethod
    def of(cls, order: Order) -> Builder:
        """Reads the workload and resolves the targets.

        Raises PlanError, WorkloadError, TrustError.
        """
        targets = {target.name: _resolved(target) for target in order.experiment.targets}
        return cls(order, _workload(order.experiment, order.consent), targets)

    @property
    def machines(self) -> dict[str, str]:
        """The machine of each target."""
        return {name: found.machine for name, found in self.targets.items()}

    def request(
        self, slot: Slot, experiment_id: str, given: Mapping[str, str | None] | None = None
    ) -> Request:
        """The trial of a slot. Raises PlanError, naming the cell, for levels that cannot be.

        given: levels of this trial alone, that tell no cells apart; None: without this one.
        """
        experiment = self.order.experiment
        design = experiment.design
        named = {**design.fixed, **dict(slot.cell.levels), **(given or {})}
        every = {n: v for n, v in named.items() if v is not None and n != ROLE}
        try:
            variant = every.get("variant")
            base = trust.variant(self.base, variant, self.order.consent) if variant else self.base
            asked = levels.asked(every, base.load, design.load_seed(slot.block))
            trial = replace(asked.trial, settings=self._settings(asked))
            return asked_for(
                base,
                replace(asked, trial=trial),
                self._target(asked),
                self.order.consent,
                on_store_error=self.order.on_store_error,
                place=Place(experiment_id, slot.cell.key, dict(slot.cell.levels), slot.block),
                from_database=source_database(experiment.from_database),
                occasion=experiment_id,
                costs=self._costs(asked.target),
                missed_max=experiment.missed_max,
            )
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None

    def _costs(self, target: str | None) -> Costs | None:
        """Of the machine of a target: what is said of it, else what this one costs."""
        if target is None:
            return self.order.costs
        found = self.targets[target]
        return found.target.costs or (self.order.costs if found.machine == HERE else None)

    def _settings(self, asked: levels.CellOptions) -> tuple[tuple[str, str], ...]:
        profiles = self.order.experiment.profiles
        profile = profiles.get(asked.profile or "", {})
        return tuple({**profile, **dict(asked.trial.settings), **dict(asked.settings)}.items())

    def _target(self, asked: levels.CellOptions) -> TargetPlan:
        if asked.target is None:
            return TargetPlan(
                server=asked.server,
                data_dir=asked.data_dir,
                tls=asked.tls,
                standbys=asked.standbys,
            )
        for name, hint in _MANAGED.items():
            if getattr(asked, name) not in (None, 0) or getattr(asked, name) is False:
                raise PlanError(f"{name} is for managed servers, target for external ones", hint)
        found = self.targets[asked.target]
        return TargetPlan(
            dsn="",
            overrides=tuple(found.keywords.items()),
            alter_system=found.target.alter_system,
            restart=found.target.restart,
            observe_command=found.target.observe_command,
            nodes=tuple(found.target.nodes.items()),
        )
