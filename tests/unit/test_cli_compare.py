"""`pgpaces compare` and `check`: which trials are meant, what is refused, what is said."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pgpaces.cli.compare import check, compare
from pgpaces.core.findings import finding
from pgpaces.spec.result import Place
from pgpaces.store.store import Store
from tests.errors import sentence
from tests.unit.calling import refused
from tests.unit.stored import Kept, keep, keep_experiment

LOG = "variant=log"
NO_LAG = sentence("no-trial-with", experiment="sensors", levels="variant=lag")


@pytest.fixture
def place(blocks, tmp_path):
    """The store of a test's own."""
    return Path(shutil.copy(blocks, tmp_path))


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
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


def _put(store, id_, ms, place, work_mem="4MB"):
    server = {"settings": {"work_mem": work_mem}}
    keep(store, Kept(id_, ms, place=place, server=server))


def called(store, *words):
    return CliRunner().invoke(compare, [*words, "--verbose", "--store", str(store)])


def test_what_differs_in_more_than_what_is_compared_is_refused_and_listed(place):
    words = ("variant=log", "large", "--in", "sensors", "--metric", "mean")
    error = refused(called(place, *words))
    assert "setting work_mem: 4MB in A, 64MB in B" in error.message
    assert error.hint is not None
    assert "--factor" in error.hint
    for more in (("--factor", "set.work_mem"), ("--anyway",)):
        result = called(place, *words, *more)
        assert result.exit_code == 0, result.output
    assert "sides-differ-otherwise: the cause is unknown" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("variant=lag", "variant=log"), NO_LAG),
        (("variant=log", "variant=log"), sentence("trials-in-common", a=LOG, b=LOG)),
        (("variant", "variant=log"), "variant"),
        (("variant=log", "large", "--also", "tps"), "metric 'tps'"),
        (("variant=log", "large", "--delta", "x"), "--delta"),
        (("large", "01L1,clients=2"), sentence("not-factor-level", text="01L1")),
    ],
)
def test_what_cannot_be_compared_is_said(place, words, said):
    assert said in refused(called(place, *words, "--in", "sensors")).message


def test_a_factor_may_be_named_as_pages_show_it(place):
    store = Store.open(place)
    row, _ = keep_experiment(store, "shown")
    for block in range(1, 4):
        for bad in ("0", "1"):
            levels = {"define.bad": bad}
            _put(store, f"04{bad}{block}", 10.0 + int(bad), Place(row.id, bad, levels, block))
    result = called(place, "bad=0", "define.bad=1", "--metric", "mean", "--in", "shown")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("ms", "baseline", "code", "said"),
    [
        (30.0, "large", 30, "WORSE 03R vs. large"),
        (6.0, "large", 0, "BETTER"),
        (12.0, "large", 0, "SAME"),
        (12.5, "021", 32, "UNKNOWN"),
    ],
)
def test_a_run_is_held_against_its_baseline_with_an_exit_code(place, ms, baseline, code, said):
    _put(Store.open(place), "03R", ms, None, work_mem="64MB")
    words = ["03R", "--baseline", baseline, "--metric", "mean", "--store", str(place)]
    result = CliRunner().invoke(check, words, standalone_mode=False)
    assert result.return_value == code, result.output
    assert said in " ".join(result.stdout.split())


LEVELS = ("variant=triggers", "variant=log", "--metric", "mean", "--in", "sensors")


@pytest.mark.parametrize("name", ["c.html", "c.md", "c.txt", "c.json", "c.csv"])
def test_a_page_of_the_runs_begins_with_the_comparison(place, tmp_path, name):
    result = called(place, *LEVELS, "-o", str(tmp_path / name))
    assert result.exit_code == 0, result.output
    text = (tmp_path / name).read_text()
    if name == "c.json":
        assert json.loads(text)["sections"]["comparison"]["verdict"]["outcome"] == "BETTER"
    elif name == "c.csv":
        assert {",a,mean,", ",b,mean,", ",ratio,mean,"} <= set(re.findall(r",\w+,mean,", text))
    else:
        word = {"c.html": "BETTER</span>", "c.md": "better:", "c.txt": "BETTER "}[name]
        assert text.index(f"{word} variant=log vs. variant=triggers") < text.index("B against A")


def test_what_is_not_valid_or_alone_is_left_out_and_counted(place):
    store = Store.open(place)
    experiment = store.load("01L1").place.experiment
    _put(store, "01L9", 10.0, Place(experiment, "log", {"variant": "log"}, 9))
    told = str(finding("trials-without-partner", count=1))
    assert told in " ".join(called(place, *LEVELS).stdout.split())
    trial = replace(store.load("021"), id="02X", state="interrupted")
    store.begin(trial)
    store.finish(trial, {})
    store.tag("large", "02X")
    text = " ".join(
        called(place, "variant=log", "large", "--in", "sensors", "--anyway").stdout.split()
    )
    assert str(finding("trials-left-out", count=1)) in text


@pytest.mark.parametrize(("factor", "known"), [("serverr", False), ("set.work_mem", True)])
def test_a_factor_that_is_none_is_refused_with_the_nearest_name(place, factor, known):
    result = called(place, "large", "variant=log", "--anyway", "--factor", factor)
    if known:
        assert result.exit_code == 0, result.output
    else:
        assert refused(result).hint == "did you mean server?"


@pytest.mark.parametrize(
    ("load", "metric"),
    [
        ("--rate 5", "p95"),
        ("--rate-per-client 2 -c 3", "p95"),
        ("-c 2 --think-time 0", "throughput"),
        ("--users 3 --pace 2", "p95"),
        ("--rate 5 --metric mean", "mean"),
        ("--rate 5 --metric throughput", "throughput"),
    ],
)
def test_a_planned_rate_is_compared_by_p95_unless_another_metric_is_named(load, metric, tmp_path):
    words = f"set.work_mem=4MB set.work_mem=64MB --run select-only {load} -T 5s --dry-run"
    done = CliRunner().invoke(compare, [*words.split(), "--store", str(tmp_path / "results.db")])
    assert done.exit_code == 0, done.output
    assert re.search(f"by {metric}, evaluated .* within 2% do not matter", done.output)
