"""`pgpaces compare` and `check`: which trials are meant, what is refused, what is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from pgpaces.cli.compare import check, compare
from pgpaces.spec.result import Place
from pgpaces.store.store import Store
from tests.unit.calling import refused
from tests.unit.stored import keep_experiment
from tests.unit.trials import series

SERVER = {"version": "18.6", "settings": {"work_mem": "4MB"}, "target": {}}


@pytest.fixture
def place(blocks: Path, tmp_path: Path) -> Path:
    """The store of a test's own."""
    return Path(shutil.copy(blocks, tmp_path))


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight blocks of two variants, `log` twice as fast; and runs with another setting."""
    path = tmp_path_factory.mktemp("compare") / "results.db"
    store = Store.open(path)
    row, _ = keep_experiment(store, "sensors")
    for block in range(1, 9):
        for variant, ms in (("triggers", 20.0 + block / 10), ("log", 10.0 + block / 20)):
            found = Place(row.id, variant, {"variant": variant}, block)
            _put(store, f"01{variant[0].upper()}{block}", ms, found)
        _put(store, f"02{block}", 12.0, None, work_mem="64MB")
        store.tag("large", f"02{block}")
    store.close()
    return path


def _put(store: Store, id_: str, ms: float, place: Place | None, work_mem: str = "4MB") -> None:
    plan = {"limit_ns": None, "policy": "run", "model": "closed", "clients": 2, "rate": 1.0}
    plan |= {"load_text": "closed", "warmup_ns": 0, "settings": {}, "protocol": "simple"}
    plan |= {"seed": 1, "duration_ns": 3_000_000_000}
    trial = series(
        [[ms] * 40] * 3,
        id=id_,
        plan=plan,
        workload={
            "name": "w",
            "scale": 1,
            "hash": "h",
            "scripts": [{"name": "a", "weight": 1, "commands": []}],
        },
        server={**SERVER, "settings": {"work_mem": work_mem}},
    )
    trial = replace(trial, place=place)
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.finish(trial, {})


def called(store: Path, *words: str) -> Result:
    return CliRunner().invoke(compare, [*words, "--verbose", "--store", str(store)])


def test_levels_of_an_experiment_are_compared_by_pairs_of_its_blocks(place: Path) -> None:
    result = called(place, "variant=triggers", "variant=log", "--metric", "mean", "--in", "sensors")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "variant=log is better than variant=triggers: its mean latency is" in said
    assert said.startswith("✓ BETTER variant=log against variant=triggers, 8 pairs")
    assert "8 pairs of trials from the blocks of an experiment" in said


def test_a_document_says_which_runs_it_rests_on(place: Path) -> None:
    words = ("variant=triggers", "variant=log", "--metric", "mean", "--in", "sensors", "--json")
    found = json.loads(called(place, *words).stdout)
    assert found["verdict"]["outcome"] == "BETTER"
    assert found["verdict"]["text"].startswith("variant=log against variant=triggers")
    assert found["compared"] == ["variant"]
    assert sorted(found["b"]["runs"]) == [f"01L{block}" for block in range(1, 9)]


def test_what_differs_in_more_than_what_is_compared_is_refused_and_listed(place: Path) -> None:
    words = ("variant=log", "large", "--in", "sensors", "--metric", "mean")
    error = refused(called(place, *words))
    assert "setting work_mem: 4MB of A, 64MB of B" in error.message
    assert error.hint is not None
    assert "--factor" in error.hint
    for more in (("--factor", "set.work_mem"), ("--anyway",)):
        result = called(place, *words, *more)
        assert result.exit_code == 0, result.output
    assert "setting work_mem" in result.stdout, "it is said as well"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("variant=lag", "variant=log"), "has no variant=lag"),
        (("variant=log", "variant=log"), "have trials in common"),
        (("variant", "variant=log"), "variant"),
        (("variant=log", "large", "--also", "tps"), "no metric to compare"),
        (("variant=log", "large", "--delta", "x"), "--delta"),
        (("large", "01L1,clients=2"), "is not FACTOR=LEVEL"),
    ],
)
def test_what_cannot_be_compared_is_said(place: Path, words: tuple[str, str], said: str) -> None:
    assert said in refused(called(place, *words, "--in", "sensors")).message


def test_a_factor_may_be_named_as_pages_show_it(place: Path) -> None:
    store = Store.open(place)
    row, _ = keep_experiment(store, "shown")
    for block in range(1, 4):
        for bad in ("0", "1"):
            levels = {"define.bad": bad}
            _put(store, f"04{bad}{block}", 10.0 + int(bad), Place(row.id, bad, levels, block))
    result = called(place, "bad=0", "define.bad=1", "--metric", "mean", "--in", "shown")
    assert result.exit_code == 0, result.output


def run_of(store: Path, id_: str, ms: float) -> None:
    opened = Store.open(store)
    _put(opened, id_, ms, None, work_mem="64MB")


@pytest.mark.parametrize(
    ("ms", "code", "said"),
    [(30.0, 30, "WORSE 03R against large"), (6.0, 0, "BETTER"), (12.0, 0, "EQUIVALENT")],
)
def test_a_run_is_held_against_its_baseline_with_an_exit_code(
    place: Path, ms: float, code: int, said: str
) -> None:
    run_of(place, "03R", ms)
    words = ["03R", "--baseline", "large", "--metric", "mean", "--store", str(place)]
    result = CliRunner().invoke(check, words, standalone_mode=False)
    assert result.return_value == code, result.output
    assert said in " ".join(result.stdout.split())


def test_a_baseline_of_one_run_decides_nothing_small(place: Path) -> None:
    run_of(place, "03R", 12.5)
    words = ["03R", "--baseline", "021", "--metric", "mean", "--store", str(place)]
    result = CliRunner().invoke(check, words, standalone_mode=False)
    assert result.return_value == 32, result.output


LEVELS = ("variant=triggers", "variant=log", "--metric", "mean", "--in", "sensors")


def test_a_table_stands_below_the_words(place: Path) -> None:
    text = called(place, *LEVELS, "--also", "p95").stdout
    assert "mean latency, ms" in text
    assert "A is variant=triggers, B is variant=log" in " ".join(text.split())


def test_a_document_has_the_answer_and_its_trials_beside_the_verdict(place: Path) -> None:
    found = json.loads(called(place, *LEVELS, "--json").stdout)
    assert found["answer"][0]["weight"] == "main"
    assert sorted(found["trials"]) == sorted(found["a"]["runs"] + found["b"]["runs"])
    assert "value" not in found, "it is `verdict`"


@pytest.mark.parametrize("name", ["c.html", "c.md", "c.txt", "c.json"])
def test_a_page_of_the_runs_begins_with_the_comparison(
    place: Path, tmp_path: Path, name: str
) -> None:
    result = called(place, *LEVELS, "-o", str(tmp_path / name))
    assert result.exit_code == 0, result.output
    text = (tmp_path / name).read_text()
    first = text.index("variant=log is better than variant=triggers")
    assert first < text.index("8 pairs of trials from the blocks")


def test_a_form_that_nobody_knows_is_refused_with_those_there_are(place: Path) -> None:
    error = refused(called(place, *LEVELS, "-o", "c.doc"))
    assert "names no form" in error.message


def test_what_is_not_valid_is_left_out_and_counted(place: Path) -> None:
    store = Store.open(place)
    trial = replace(store.load("021"), id="02X", state="interrupted")
    store.begin(trial)
    store.finish(trial, {})
    store.tag("large", "02X")
    text = " ".join(
        called(place, "variant=log", "large", "--in", "sensors", "--anyway").stdout.split()
    )
    assert "Left out as unfinished or not valid: 1 trial." in text


@pytest.mark.parametrize(("factor", "known"), [("serverr", False), ("set.work_mem", True)])
def test_a_factor_that_is_none_is_refused_with_the_nearest_name(
    place: Path, factor: str, known: bool
) -> None:
    result = called(place, "large", "variant=log", "--anyway", "--factor", factor)
    if known:
        assert result.exit_code == 0, result.output
    else:
        assert refused(result).hint == "did you mean server?"


def test_fewer_pairs_than_a_comparison_should_have_are_told(place: Path) -> None:
    store = Store.open(place)
    for block in range(3, 9):
        for row in store.trials(experiment=store.find_experiment("sensors")):
            if row.id.endswith(str(block)):
                store.delete(row.id)
    text = " ".join(called(place, *LEVELS).stdout.split())
    assert "2 pairs" in text
    assert "With fewer than 8" in text


@pytest.mark.parametrize(
    ("load", "metric"),
    [
        ("--rate 5", "p95"),
        ("--rate-per-client 2 -c 3", "p95"),
        ("-c 2 --think-time 0", "rate"),
        ("--users 3 --pace 2", "rate"),
        ("--rate 5 --metric mean", "mean"),
        ("--rate 5 --metric rate", "rate"),
    ],
)
def test_a_planned_rate_is_compared_by_p95_unless_another_metric_is_named(
    load: str, metric: str, tmp_path: Path
) -> None:
    words = f"set.work_mem=4MB set.work_mem=64MB --run select-only {load} -T 5s --dry-run"
    done = CliRunner().invoke(compare, [*words.split(), "--store", str(tmp_path / "results.db")])
    assert done.exit_code == 0, done.output
    assert f"by {metric}, where 2% do not matter" in done.output
