"""The request of one run from its options, which were typed or are keywords of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgpaces import levels, options, trust
from pgpaces.costs import Costs
from pgpaces.design import Levels
from pgpaces.errors import PlanError
from pgpaces.experiment.request import Request, request_of
from pgpaces.generators import engine as generator
from pgpaces.generators.engine import for_driver
from pgpaces.locality import is_local
from pgpaces.plan import TargetPlan, pairs
from pgpaces.servers import profiles
from pgpaces.workload import Workload


def run_of(
    workload: Workload,
    values: Mapping[str, Any],
    background: Mapping[str, Levels],
    consent: trust.Consent,
    host_file: str | Path | None = None,
    **more: Any,
) -> Request:
    """The run of a workload.

    values: of options by name, as `options.defaults` has them. background: the levels of each
    background workload. host_file: with the costs of the machine. more: other fields of the
    request. Raises PlanError, TrustError.
    """
    where = target(values, alone=workload.alone)
    cell_options = levels.cell_options(values, workload.load, background=background)
    priced = costs_of_target(where, host_file)
    return request_of(workload, cell_options, where, consent, occasion="run", costs=priced, **more)


def costs_of_target(target: TargetPlan, named: str | Path | None = None) -> Costs | None:
    """The costs of a run's machine: from the named file, else from this machine's.

    None if the server is elsewhere and no file is named. Raises PlanError, TlsError.
    """
    from pgpaces import host_file

    if named is None and target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        if not is_local(for_driver(connection)):
            return None
    return host_file.find(named)


def target(values: Mapping[str, Any], *, alone: bool = False) -> TargetPlan:
    """The target of a run; alone: of scripts without a workload. Raises PlanError."""
    if alone and values["own"] is not None:
        raise PlanError(
            "--own is for the data of a workload; scripts alone run in the database of --target",
            "leave out --own, or name a workload as well",
        )
    if values["target"] is not None:
        for name in ("server", "data_dir", "profile", "tls", "standbys", "pool"):
            if values[name] or values[name] is False:
                word = options.BY_NAME[name].word
                raise PlanError(
                    f"{word} is for managed servers, --target for external ones", "choose one"
                )
        if values["server_set"]:
            raise PlanError("--server-set is for managed servers, --target for external ones")
    elif values["observe_command"] is not None:
        raise PlanError("--observe-command is for the machine of a --target")
    elif values["target_node"]:
        raise PlanError("--target-node belongs to a --target; --standbys starts managed ones")
    elif values["own"] is not None:
        raise PlanError("--own needs --target: pgpaces creates every database on a managed server")
    return TargetPlan(
        dsn=values["target"],
        observe_command=values["observe_command"],
        server=values["server"],
        data_dir=values["data_dir"],
        own=values["own"],
        fresh=values["fresh"],
        server_settings=_server_settings(values),
        tls=values["tls"],
        standbys=values["standbys"] or 0,
        nodes=nodes(values["target_node"]),
    )


def nodes(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """NAME=DSN texts of servers that belong to a target. Raises PlanError."""
    addresses = pairs(values, "--target-node")
    for name, _ in addresses:
        if not re.fullmatch(r"standby[1-9][0-9]?|pool", name):
            raise PlanError(f"--target-node '{name}' is neither standby1, standby2, ... nor pool")
    return addresses


def background_of(several: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """The levels of background workloads, by name: a run has one of each. Raises PlanError."""
    for name, texts in several.items():
        levels.check_name(name)
        if len(texts) != 1:
            raise PlanError(
                f"{name} has the levels {', '.join(texts)}: a run has one level of each",
                "`pgpaces sweep` has several; a comma in a level is written \\,",
            )
    return levels.background_of({name: texts[0] for name, texts in several.items()})


def _server_settings(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The settings of the profile; those of --server-set override them."""
    named = pairs(values["server_set"], "--server-set")
    if values["profile"] is None:
        return named
    return tuple({**profiles.find(values["profile"]).settings, **dict(named)}.items())
