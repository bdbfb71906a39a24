"""One rule for all commands: what has no data of its own measures what the target has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgpaces.database import data
from pgpaces.database.data import DatasetSpec
from pgpaces.spec import workload
from pgpaces.spec.design import Ask, Design, Experiment
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.target import Target, TargetPlan
from pgpaces.trial.request import Request, backgrounds
from pgpaces.trial.sweep import PlannedSweep

TRIAL = TrialPlan(load=Load("closed"), limit_ns=1)
THERE = TargetPlan(dsn="host=pi4 dbname=shop")


def script(folder: Path) -> str:
    file = folder / "x.sql"
    file.write_text("SELECT count(*) FROM orders;\n")
    return str(file)


@pytest.mark.parametrize(
    ("kind", "changes", "as_is"),
    [
        ("script", {}, True),
        ("command", {}, True),
        ("functions", {}, True),
        ("script", {"target": TargetPlan()}, False),
        ("script", {"from_database": "shop"}, False),
        ("workload", {}, False),
        ("scripts of a workload", {}, False),
        ("functions on a workload", {}, False),
    ],
)
def test_what_has_no_data_of_its_own_goes_to_the_database_as_it_stands(
    tmp_path, kind, changes, as_is
):
    named = workload.find("reporting")

    def look(connection: Any) -> None:
        """A task."""

    scripts = [workload.read_script(script(tmp_path))]
    found = {
        "script": workload.of_scripts("scripts", scripts),
        "command": workload.of_command(workload.Command("pgbench -i", None, (), None)),
        "functions": workload.of_tasks([_task(look)]),
        "workload": named,
        "scripts of a workload": workload.replace(named, scripts=tuple(scripts)),
        "functions on a workload": workload.of_tasks([_task(look)], named),
    }[kind]
    assert Request(found, TRIAL, **({"target": THERE} | changes)).as_is is as_is


def _task(function: Any) -> Any:
    import pgpaces

    return pgpaces.task(function)


@pytest.mark.parametrize("names", [None, "reporting"])
@pytest.mark.parametrize("source", [None, "shop"])
def test_so_do_the_trials_of_experiments_and_searches(tmp_path, names, source):
    design = Design({"clients": ("1",), "target": ("pi",), "duration": ("1s",)})
    experiment = Experiment(
        "x", names, design, files=(script(tmp_path),), from_database=source,
        targets=(Target("pi", "host=127.0.0.1 dbname=shop"),),
    )  # fmt: skip
    request = PlannedSweep.of(experiment).request(Ask(design.cells()[0], 1))
    assert request.as_is is (names is None and source is None)
    assert dict(request.target.overrides)["dbname"] == "shop"


def test_a_script_beside_a_workload_works_on_its_data(tmp_path):
    main = Request(workload.find("reporting"), TRIAL, THERE)
    [(_, other)] = backgrounds(
        main, {"background.x.workload": script(tmp_path), "background.x.rate": "1/s"}
    )
    from pgpaces.trial.request import shares_data

    assert shares_data(main, other)


def test_a_database_whose_name_is_not_utf8_is_known_by_its_bytes():
    """As it comes from a command line: its bytes as halves of surrogate pairs."""
    of = workload.find("select-only")
    specs = [DatasetSpec(of, 1, 1, from_database=name) for name in ("\udce4", "\udcf6")]
    assert data.names(specs[0], 18) != data.names(specs[1], 18)
