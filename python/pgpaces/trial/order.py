"""An order to run an experiment, and the requests of its trials. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from pgpaces.analysis.sequential import Ask
from pgpaces.core.errors import PlanError
from pgpaces.core.locality import is_local
from pgpaces.core.redaction import Redacted
from pgpaces.database.specification import typed
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.spec import levels, trust, workload
from pgpaces.spec import spec as specs
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import HERE, ROLE, Experiment, Target
from pgpaces.spec.plan import family
from pgpaces.spec.result import Place
from pgpaces.spec.target_plan import TargetPlan
from pgpaces.trial.request import OnStoreError, Request, request_of, workload_of
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


class _Resolved(Struct, frozen=True):
    """The plan of a target, its costs, and the name of its machine: HERE if it is local."""

    plan: TargetPlan
    costs: Costs | None
    machine: str

    @classmethod
    def of(cls, target: Target) -> _Resolved:
        keywords = for_driver(generator.resolve(target.dsn))
        host = keywords.get("hostaddr") or keywords.get("host", "")
        plan = TargetPlan(
            dsn="",
            overrides=tuple(keywords.items()),
            alter_system=target.alter_system,
            restart=target.restart,
            observe_command=target.observe_command,
            nodes=tuple(target.nodes.items()),
            typed=tuple(typed(target.dsn).items()),
        )
        return cls(plan, target.costs, HERE if is_local(keywords) else host)


class Builder(Redacted, frozen=True):
    """Makes the trials of an experiment.

    source: the database whose copy is measured, its DSN with what PG* variables say. A managed
    server hides these while it runs, and later trials are made then.
    """

    REDACTED: ClassVar = ("targets", "source")
    order: Order
    base: workload.Workload
    targets: Mapping[str, _Resolved]
    source: str | None

    @classmethod
    def of(cls, order: Order) -> Builder:
        """Reads the workload, resolves the targets. Raises PlanError, WorkloadError, TrustError."""
        targets = {each.name: _Resolved.of(each) for each in order.experiment.targets}
        source = source_database(order.experiment.from_database)
        experiment = order.experiment
        what: dict[str, Any] = {"files": experiment.files}
        what |= {} if experiment.workload is None else {"workload": experiment.workload}
        base = workload_of(what, order.consent, name=experiment.name)
        return cls(order, base, targets, source)

    @property
    def machines(self) -> dict[str, str]:
        return {name: target.machine for name, target in self.targets.items()}

    def request(self, ask: Ask, experiment_id: str) -> Request:
        """The trial of an ask. Raises PlanError, naming the cell, for invalid levels."""
        experiment = self.order.experiment
        design = experiment.design
        named = {**design.fixed, **dict(ask.cell.levels), **ask.options}
        try:
            every = specs.read({n: v for n, v in named.items() if n != ROLE})
            variant, profile = every.pop("variant", None), every.pop("profile", "")
            base = trust.variant(self.base, variant, self.order.consent) if variant else self.base
            # pgpaces applies all settings with the least possible interruption.
            settings = {**experiment.profiles.get(profile, {})}
            for of in ("server_set", "set"):
                settings |= family(every, of)
            spec = {
                n: v for n, v in every.items() if n.partition(".")[0] not in ("server_set", "set")
            }
            spec |= {f"set.{name}": value for name, value in settings.items()}
            # All cells of a block meet the same arrivals.
            spec |= {"seed": design.seed + ask.block - 1, "missed": experiment.missed_max}
            spec |= {} if self.source is None else {"from_database": self.source}
            costs, target = self.order.costs, None
            if "target" in spec:
                resolved = self.targets[spec["target"]]
                costs = resolved.costs or (costs if resolved.machine == HERE else None)
                target = resolved.plan
            return request_of(
                spec,
                base,
                target=target,
                consent=self.order.consent,
                on_store_error=self.order.on_store_error,
                place=Place(
                    experiment_id, ask.cell.key, dict(ask.cell.levels), ask.block, ask.attempt
                ),
                occasion=experiment_id,
                costs=costs,
            )
        except PlanError as error:
            raise levels.in_cell(error, ask.cell) from None
