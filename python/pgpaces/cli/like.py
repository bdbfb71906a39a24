"""`--like RUN`: the options of a stored run or experiment, and over them those that are typed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pgpaces.cli import options
from pgpaces.core.errors import PlanError

if TYPE_CHECKING:
    from pgpaces.spec.design import Draft
    from pgpaces.spec.result import Trial
    from pgpaces.spec.workload import Workload


def spec(params: Mapping[str, Any]) -> tuple[dict[str, Any], Trial | None]:
    """The spec of a run: what is typed, over that of the run that --like names; and this run.

    No run if something else than the run's workload is to run. Raises PlanError, StoreError.
    """
    typed = options.spec(params)
    if params["like"] is None:
        return typed, None
    from pgpaces.spec import spec as specs

    trial = _trial(params)
    other = typed.keys() & {"workload", "variant", "files", "command"}
    return specs.over(trial.spec, typed), None if other else trial


def _trial(params: Mapping[str, Any]) -> Trial:
    from pgpaces.store.store import Store

    with closing(Store.existing(params["store_path"])) as store:
        trial = store.load(store.find(params["like"]))
    if not trial.spec or trial.setup.imported is not None:
        raise PlanError("run-without-spec", run=trial.id)
    return trial


def check(trial: Trial | None, workload: Workload, params: Mapping[str, Any]) -> None:
    """Raises PlanError if the workload of the stored run has changed since, without --anyway."""
    if trial is None or params.get("anyway") or workload.hash == trial.workload.hash:
        return
    then = {script.name: script.text for script in trial.workload.scripts}
    now = {script.name: script.text for script in workload.scripts}
    names = dict.fromkeys((*then, *now))
    changed = [name for name in names if then.get(name) != now.get(name)]
    raise PlanError("workload-changed", workload=workload.name, changed=changed or ["the data"])


def draft(params: Mapping[str, Any]) -> Draft:
    """The experiment that --like names, or one of the run that it names. Raises PlanError."""
    from pgpaces.cli import consent
    from pgpaces.spec import design as drafts
    from pgpaces.spec import spec, trust
    from pgpaces.store.store import Store
    from pgpaces.trial import document

    with closing(Store.existing(params["store_path"])) as store:
        id_ = store.find_any(params["like"])
        if store.is_experiment(id_):
            return drafts.of(document.read(store.experiment(id_).document))
    trial = _trial(params)
    found = spec.draft(trial.spec)
    if found.workload is not None and not found.files and params["what"] is None:
        check(trial, trust.find(found.workload, consent.of(params)), params)
    return found
