"""Users that are Python functions, as trials run them: their limitations and their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgpaces.core.errors import PlanError
from pgpaces.load import engine as generator
from pgpaces.load.python_users.load import UsersLoad, user_connection
from pgpaces.spec.plan import ONLY_OF_SCRIPTS, TrialPlan
from pgpaces.spec.users import call
from pgpaces.spec.workload import Workload

if TYPE_CHECKING:
    from pgpaces.trial.components import ComponentLoad


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
    scripts = [(script.name, script.weight) for script in component.scripts]
    way = user_connection(connection, component.work.variables())
    return UsersLoad(component.engine_plan(), users, scripts, way=way)
