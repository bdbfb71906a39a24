"""Numbers of any size, from the command line, files and Python, are taken or refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pgpaces
from pgpaces.cli.main import cli
from pgpaces.core.errors import PgpacesError, PlanError
from pgpaces.core.units import ms_text, rate_text
from pgpaces.show.numbers import percent
from pgpaces.spec import experiment_file, workload
from pgpaces.spec.plan import Load, TrialPlan
from pgpaces.spec.target_plan import PoolPlan
from pgpaces.trial import request
from pgpaces.trial.request import Request

HUGE = str(2**70)
ENDLESS = "9" * 5000
OPTIONS = {
    "run select-only": "-c -j -t -s -P --users --max-tries --seed --data-seed --pool-size",
    "run": "-f x.sql@",
    "sweep select-only --dry-run": "-c -j -t -s -P --users --max-tries --seed --data-seed --trials",
    "capacity select-only -L 1s --dry-run": "--seed -j --max-tries -s",
    "compare a b --run select-only": "--pairs --same --seed",
    "runs": "-n",
    "observe": "-n",
    "disk . --yes": "--runs",
    "workload from-statements x": "--top",
}


def words() -> list[list[str]]:
    return [
        [*command.split(), option, number]
        for command, options in OPTIONS.items()
        for option in options.split()
        if option.startswith("-")
        for number in (HUGE, ENDLESS, "-1")
        if option != "-f"
    ]


@pytest.mark.parametrize("given", words(), ids=lambda given: " ".join(given)[:60])
def test_a_number_that_is_too_large_is_refused_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, given)
    error = done.exception
    code = error.exit_code if isinstance(error, PgpacesError) else done.exit_code
    assert code == 2, (error, done.output)
    assert "No such" not in done.output
    assert "Missing" not in done.output


@pytest.mark.parametrize(
    ("value", "rates", "times"),
    [(0.1234, "0.123", "0.123"), (99.94, "99.9", "99.9"), (99.96, "100", "100"),
     (999.4, "999", "999"), (999.7, "1,000", "1,000"), (5234.4, "5,234", "5,234"),
     (1.157e-5, "0.0000116", "0.0000116"), (0.0, "0", "0")],
)  # fmt: skip
def test_no_rate_or_time_is_printed_with_an_exponent(value: float, rates: str, times: str) -> None:
    assert (rate_text(value), ms_text(value)) == (rates, times)


def test_no_percentage_is_printed_with_an_exponent() -> None:
    shares = (7.4e-7, 1e-4, 0.5, 0.0)
    assert [percent(share) for share in shares] == ["0.000074", "0.01", "50.0", "0.0"]


@pytest.mark.parametrize("command", ["run -f", "sweep --dry-run -c 1 -f"])
def test_a_weight_that_is_too_large_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "x.sql").write_text("SELECT 1;\n")
    done = CliRunner().invoke(cli, [*command.split(), f"{tmp_path / 'x.sql'}@{2**40}"])
    assert isinstance(done.exception, PlanError), done.output
    assert "must be an integer from 0 to 2147483647" in str(done.exception.hint)


@pytest.mark.parametrize("name", ["clients", "threads", "transactions", "max_tries", "seed"])
@pytest.mark.parametrize("value", [2**70, -1, 1.5, "1", True, float("nan")], ids=str)
def test_a_trial_has_integers_that_fit(name: str, value: Any) -> None:
    with pytest.raises(PlanError, match=f"{name} .* is out of range"):
        TrialPlan(load=Load("closed"), **{name: value})


def test_so_have_a_request_a_pool_and_the_python_interface() -> None:
    trial = TrialPlan(load=Load("closed"), limit_ns=1)
    for changes in ({"data_seed": 2**70}, {"scale": 2**70}, {"scale": "1"}):
        asked: Any = Request(workload.find("select-only"), trial, **changes)
        with pytest.raises(PlanError, match="is out of range"):
            request.check(asked)
    with pytest.raises(PlanError, match="is out of range"):
        PoolPlan("pgbouncer", size=2**70)
    with pytest.raises(PlanError, match="is out of range"):
        pgpaces.run("select-only", max_tries=2**70)
    with pytest.raises(PlanError):
        pgpaces.sweep("select-only", clients=[2**70])


@pytest.mark.parametrize(
    "text",
    [f"trials = {HUGE}", f"seed = {HUGE}", f"clients = {HUGE}", f"[factors]\nclients = [{HUGE}]"],
)
def test_so_has_an_experiment_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(f'workload = "select-only"\n{text}\n')
    done = CliRunner().invoke(cli, ["sweep", str(file), "--dry-run"])
    assert isinstance(done.exception, PlanError), done.output
    assert experiment_file.schema()


@pytest.mark.parametrize(
    "text", [f"[load]\nclients = {HUGE}", f'[load]\ntransactions = "{HUGE}"', f"scale = {HUGE}"]
)
def test_so_has_a_workload(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "a.sql").write_text("SELECT 1;\n")
    (folder / "workload.toml").write_text(
        f'name = "own"\ndescription = "x"\nwrites = false\n'
        f'{text if text.startswith("scale") else ""}\nscripts = [{{ file = "a.sql" }}]\n'
        f"{'' if text.startswith('scale') else text}\n"
    )
    done = CliRunner().invoke(cli, ["sweep", str(folder), "-c", "1", "--dry-run"])
    assert isinstance(done.exception, PgpacesError), done.output
