"""`--like RUN`: the options of a stored run or experiment, and over them those that are typed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from pgpaces.core.errors import PlanError
from pgpaces.spec import options as table

if TYPE_CHECKING:
    from pgpaces.spec.draft import Draft
    from pgpaces.spec.result import Trial
    from pgpaces.spec.workload import Workload

# A parameter of a command whose name differs from that of a spec.
_NAMES = {"inputs": "input"}
# What runs; if one of these is typed, the stored workload need not be as it was.
_WHAT = ("workload", "variant", "files", "command")


def options(params: Mapping[str, Any]) -> tuple[dict[str, Any], Trial | None]:
    """The parameters of a run with those of the run that --like names, and this run.

    Raises PlanError, StoreError.
    """
    if params["like"] is None:
        return dict(params), None
    from pgpaces.spec import spec

    trial = _trial(params)
    context = click.get_current_context()
    typed = {
        _NAMES.get(name, name): value
        for name, value in params.items()
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    own = {name: value for name, value in typed.items() if _of_a_spec(name)}
    merged = spec.over(trial.plan.spec, own)
    for name, value in merged.items():
        if name == "tls" and isinstance(value, bool):
            merged[name] = "on" if value else "off"
        elif name == "missed" and isinstance(value, float):
            merged[name] = f"{100 * value:.15g}%"
    names = {name: _NAMES.get(name, name) for name in params}
    gone = {name: _empty(name) for name in table.replaced(own)}
    found = {p: merged[n] for p, n in names.items() if n in merged}
    absent = {p: gone[n] for p, n in names.items() if n in gone and n not in merged}
    return {**params, **absent, **found}, None if own.keys() & set(_WHAT) else trial


def _of_a_spec(name: str) -> bool:
    return name in table.BY_NAME or name in (*_WHAT, "from_database", "missed", "input", "rows")


def _empty(name: str) -> Any:
    several = name == "files" or (name in table.BY_NAME and table.BY_NAME[name].several)
    return () if several else None


def _trial(params: Mapping[str, Any]) -> Trial:
    from pgpaces.store.store import Store

    with closing(Store.existing(params["store_path"])) as store:
        trial = store.load(store.find(params["like"]))
    if not trial.plan.spec:
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
    from pgpaces.spec import draft as drafts
    from pgpaces.spec import spec, trust
    from pgpaces.store.store import Store
    from pgpaces.trial import document

    with closing(Store.existing(params["store_path"])) as store:
        id_ = store.find_any(params["like"])
        if store.is_experiment(id_):
            return drafts.of(document.read(store.experiment(id_).document))
    trial = _trial(params)
    found = spec.draft(trial.plan.spec)
    if found.workload is not None and not found.files and params["what"] is None:
        check(trial, trust.find(found.workload, consent.of(params)), params)
    return found
