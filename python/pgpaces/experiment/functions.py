"""Users that are Python functions, as trials run them: their limitations and their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pgpaces.errors import PlanError
from pgpaces.experiment.site import for_driver
from pgpaces.generators import engine as generator
from pgpaces.generators.users.load import UserConnection, UsersLoad
from pgpaces.plan import ONLY_OF_SCRIPTS, TrialPlan, without_secrets
from pgpaces.users import call
from pgpaces.workload import Workload

if TYPE_CHECKING:
    from pgpaces.experiment.components import ComponentLoad

# libpq's defaults.
_USUAL = {
    "channel_binding": ("prefer",),
    "gssdelegation": ("0",),
    "gssencmode": ("prefer", "disable"),
    "krbsrvname": ("postgres",),
    "load_balance_hosts": ("disable",),
    "ssl_min_protocol_version": ("TLSv1.2",),
    "sslcompression": ("0",),
    "sslmode": ("prefer",),
    "sslnegotiation": ("postgres",),
    "sslsni": ("1",),
    "target_session_attrs": ("any",),
}


def check(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError, WorkloadError for options that such users do not support."""
    users = workload.users
    if users is None:
        return
    tasks = {task.name: task for task in users.tasks}
    if any(script.name not in tasks for script in workload.scripts):
        raise PlanError(
            f"workload {workload.name} is Python users, and runs no scripts",
            "name the scripts' own workload, or run them as a background workload:"
            " --background FILE.sql",
        )
    for name, usual in ONLY_OF_SCRIPTS.items():
        if name != "threads" and getattr(trial, name) != usual:
            raise PlanError(f"{name.replace('_', ' ')} is of scripts, and Python users have none")
    if not trial.continue_on_error or trial.backlog != "serve":
        raise PlanError("a task that raises ends nothing", "leave out --on-error")
    variables = {"scale": "1", **workload.variables, **dict(trial.variables)}
    for each in (*(task.function for task in users.tasks), *filter(None, [users.setup])):
        call(each, variables, task=each is not users.setup)


def load(component: ComponentLoad, connection: generator.Connection) -> UsersLoad:
    """The load of a component's users. Raises PgpacesError."""
    users = component.work.request.workload.users
    assert users is not None
    keywords = for_driver(connection)
    shown = without_secrets(keywords)
    secrets = tuple(value for name, value in keywords.items() if value and name not in shown)
    way = UserConnection(uri(keywords), component.work.variables(), secrets)
    scripts = [(script.name, script.weight) for script in component.scripts]
    return UsersLoad(component.engine_plan(), users, scripts, way)


def uri(keywords: dict[str, str]) -> str:
    """A connection as a URI that libpq and drivers with their own parsers understand.

    Without libpq's defaults, because some drivers know fewer keywords.
    """
    rest = {
        name: value
        for name, value in keywords.items()
        if name != "dbname" and value and value not in _USUAL.get(name, ())
    }
    if "password" in rest:
        rest.pop("passfile", None)
    return f"postgresql:///{quote(keywords['dbname'], safe='')}?{urlencode(rest, quote_via=quote)}"
