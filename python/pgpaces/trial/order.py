"""An order to run an experiment, and the requests of its trials. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import PlanError
from pgpaces.core.locality import is_local
from pgpaces.core.redaction import Redacted
from pgpaces.core.units import digits
from pgpaces.database.specification import typed
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.spec import levels, trust, workload
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import HERE, ROLE, Experiment, Slot, Target
from pgpaces.spec.result import Place
from pgpaces.spec.target_plan import TargetPlan
from pgpaces.trial.request import OnStoreError, Request, request_of
from pgpaces.trial.site import source_database
from pgpaces.trial.strategies import Goal


class Order(Struct, frozen=True):
    """An experiment to run, or to resume.

    store: where results go; None for the default. resume: the id of the experiment to resume.
    command: as typed, so that it can be repeated. costs: of this machine. goal: of an adaptive
    experiment; without one its trials are those of the design. consent: whether the folders of
    workloads may execute programs.
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


class _ResolvedTarget(Redacted, frozen=True):
    """A target with all connection keywords, also of the environment; machine: HERE if local."""

    REDACTED: ClassVar = ("keywords",)
    target: Target
    keywords: Mapping[str, str]
    machine: str


def _resolved(target: Target) -> _ResolvedTarget:
    keywords = for_driver(generator.resolve(target.dsn))
    host = keywords.get("hostaddr") or keywords.get("host", "")
    return _ResolvedTarget(target, keywords, HERE if is_local(keywords) else host)


class Builder(Redacted, frozen=True):
    """Makes the trials of an experiment.

    source: the database whose copy is measured, its DSN with what PG* variables say. A managed
    server hides these while it runs, and later trials are made then.
    """

    REDACTED: ClassVar = ("targets", "source")
    order: Order
    base: workload.Workload
    targets: Mapping[str, _ResolvedTarget]
    source: str | None

    @classmethod
    def of(cls, order: Order) -> Builder:
        """Reads the workload, resolves the targets. Raises PlanError, WorkloadError, TrustError."""
        targets = {target.name: _resolved(target) for target in order.experiment.targets}
        source = source_database(order.experiment.from_database)
        return cls(order, _workload(order.experiment, order.consent), targets, source)

    @property
    def machines(self) -> dict[str, str]:
        return {name: target.machine for name, target in self.targets.items()}

    def request(
        self, slot: Slot, experiment_id: str, overrides: Mapping[str, str | None] | None = None
    ) -> Request:
        """The trial of a slot. Raises PlanError, naming the cell, for invalid levels.

        overrides: levels of this trial alone, not of its cell; None removes a level.
        """
        experiment = self.order.experiment
        design = experiment.design
        named = {**design.fixed, **dict(slot.cell.levels), **(overrides or {})}
        every = {n: v for n, v in named.items() if v is not None and n != ROLE}
        try:
            variant = every.get("variant")
            base = trust.variant(self.base, variant, self.order.consent) if variant else self.base
            # All cells of a block meet the same arrivals.
            options = levels.options_of(every, base.load, design.seed + slot.block - 1)
            trial = replace(options.trial, settings=self._settings(options))
            costs = self.order.costs
            if options.target is not None:
                resolved = self.targets[options.target]
                costs = resolved.target.costs or (costs if resolved.machine == HERE else None)
            return request_of(
                base,
                replace(options, trial=trial),
                self._target(options),
                consent=self.order.consent,
                on_store_error=self.order.on_store_error,
                place=Place(experiment_id, slot.cell.key, dict(slot.cell.levels), slot.block),
                from_database=self.source,
                occasion=experiment_id,
                costs=costs,
                missed_max=experiment.missed_max,
            )
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None

    def _settings(self, options: levels.CellOptions) -> tuple[tuple[str, str], ...]:
        profile = self.order.experiment.profiles.get(options.profile or "", {})
        return tuple({**profile, **dict(options.settings), **dict(options.trial.settings)}.items())

    def _target(self, options: levels.CellOptions) -> TargetPlan:
        if options.target is None:
            return TargetPlan(
                server=options.server,
                data_dir=options.data_dir,
                tls=options.tls,
                standbys=options.standbys,
            )
        for name in ("server", "data_dir", "tls", "standbys"):
            if getattr(options, name) not in (None, 0) or getattr(options, name) is False:
                raise PlanError("managed-only", option=name)
        resolved = self.targets[options.target]
        return TargetPlan(
            dsn="",
            overrides=tuple(resolved.keywords.items()),
            alter_system=resolved.target.alter_system,
            restart=resolved.target.restart,
            observe_command=resolved.target.observe_command,
            nodes=tuple(resolved.target.nodes.items()),
            typed=tuple(typed(resolved.target.dsn).items()),
        )
