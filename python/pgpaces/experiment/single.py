"""One run as its options ask for it, whether they were typed or are keywords of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgpaces import levels, options, trust
from pgpaces.design import Levels
from pgpaces.errors import PlanError
from pgpaces.experiment import costs
from pgpaces.experiment.request import Request, asked_for
from pgpaces.plan import TargetPlan, pairs
from pgpaces.servers import profiles
from pgpaces.workload import Workload


def run_of(
    workload: Workload,
    given: Mapping[str, Any],
    beside: Mapping[str, Levels],
    consent: trust.Consent,
    host_file: str | Path | None = None,
    **more: Any,
) -> Request:
    """The run of a workload.

    given: values of options by name, as `options.defaults` has them. beside: the levels of each
    background workload. host_file: what the machine costs. more: other fields of the request.
    Raises PlanError, TrustError.
    """
    where = target(given, alone=workload.alone)
    asked = levels.cell_options(given, workload.load, beside=beside)
    priced = costs.of_target(where, host_file)
    return asked_for(workload, asked, where, consent, occasion="run", costs=priced, **more)


def target(given: Mapping[str, Any], *, alone: bool = False) -> TargetPlan:
    """Where the options send the load; alone: of what is no workload. Raises PlanError."""
    if alone and given["own"] is not None:
        raise PlanError(
            "--own is for the data of a workload; scripts alone run in the database of --target",
            "leave out --own, or name a workload as well",
        )
    if given["target"] is not None:
        for name in ("server", "data_dir", "profile", "tls", "standbys", "pool"):
            if given[name] or given[name] is False:
                word = options.BY_NAME[name].word
                raise PlanError(
                    f"{word} is for managed servers, --target for external ones", "choose one"
                )
        if given["server_set"]:
            raise PlanError("--server-set is for managed servers, --target for external ones")
    elif given["observe_command"] is not None:
        raise PlanError("--observe-command is for the machine of a --target; ours is seen anyway")
    elif given["target_node"]:
        raise PlanError("--target-node belongs to a --target; --standbys makes some of ours")
    elif given["own"] is not None:
        raise PlanError("--own needs --target: on a managed server everything is ours")
    return TargetPlan(
        dsn=given["target"],
        observe_command=given["observe_command"],
        server=given["server"],
        data_dir=given["data_dir"],
        own=given["own"],
        fresh=given["fresh"],
        server_settings=_server_settings(given),
        tls=given["tls"],
        standbys=given["standbys"] or 0,
        nodes=nodes(given["target_node"]),
    )


def nodes(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """NAME=DSN texts of servers that belong to a target. Raises PlanError."""
    found = pairs(values, "--target-node")
    for name, _ in found:
        if not re.fullmatch(r"standby[1-9][0-9]?|pool", name):
            raise PlanError(f"--target-node '{name}' is neither standby1, standby2, ... nor pool")
    return found


def beside_of(found: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """The levels of background workloads, by name: a run has one of each. Raises PlanError."""
    for name, several in found.items():
        levels.check_name(name)
        if len(several) != 1:
            raise PlanError(
                f"{name} has the levels {', '.join(several)}: a run has one level of each",
                "`pgpaces sweep` has several; a comma in a level is written \\,",
            )
    return levels.beside_of({name: several[0] for name, several in found.items()})


def _server_settings(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Those of the profile; what is given by name goes before them."""
    asked = pairs(given["server_set"], "--server-set")
    if given["profile"] is None:
        return asked
    return tuple({**profiles.find(given["profile"]).settings, **dict(asked)}.items())
