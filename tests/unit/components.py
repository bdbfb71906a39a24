"""Workloads whose data stands ready, for tests of what goes where."""

from pgpaces.spec import workload
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.setup import Prepared
from pgpaces.spec.workload import WorkloadScript
from pgpaces.trial.prepare import Work
from pgpaces.trial.request import Request

NAMES = ("read", "write", "report")


def scripts_of(weights):
    """Scripts with these weights, by name in NAMES."""
    return tuple(
        WorkloadScript(name, weight, "SELECT 1;\n")
        for name, weight in zip(NAMES, weights, strict=False)
    )


def work(weights=(1,), name="", **changes):
    """A workload whose data stands ready; changes: of the request, or `trial` of the plan."""
    scripts = scripts_of(weights)
    trial = TrialPlan(**{"load": Load("open", 10.0), **changes.pop("trial", {})})
    of = workload.of_scripts("w", scripts)
    request = Request(of, trial, **changes)
    prepared = Prepared("db", "f", created=False, seconds=0.0, size_bytes=0)
    return Work(name, request, prepared)
