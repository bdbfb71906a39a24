"""`pgpaces report`: where the answer goes, and in which form."""

import io

import arro3.io
import pytest
from click.testing import CliRunner

from pgpaces.cli import answers as face
from pgpaces.store.store import Store
from tests.unit.calling import refused
from tests.unit.stored import Kept, keep


@pytest.fixture
def store(tmp_path):
    """A store with two runs of one second after the other."""
    path = tmp_path / "results.db"
    opened = Store.open(path)
    for name, clients in (("01A", 2), ("01B", 4)):
        plan = {"model": "open", "clients": clients, "limit_ns": 500_000_000}
        plan |= {"rate": float(clients)}
        keep(opened, Kept(name, plan=plan, latencies_ms=((10.0, 20.0), (30.0,), (5.0,))))
    return path


def called(store, *words):
    return CliRunner().invoke(face.report, [*words, "--store", str(store)])


def test_runs_are_reported_on_stdout(store):
    result = called(store, "01A", "01B")
    assert result.exit_code == 0, result.output
    assert "clients" in result.stdout
    assert "missed %" in result.stdout


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.csv", "r.parquet", "r.txt"])
def test_a_file_gets_the_form_of_its_ending(store, tmp_path, name):
    path = tmp_path / name
    result = called(store, "01A", "01B", "-o", str(path))
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 200
    assert list(tmp_path.glob(".r*")) == [], "nothing is left beside it"


def test_pictures_go_to_a_folder(store, tmp_path):
    result = called(store, "01A", "01B", "-o", str(tmp_path / "charts"), "--format", "svg")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "charts" / "p95.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(("form", "name"), [("parquet", "binary-form"), ("png", "form-of-folder")])
def test_what_is_no_text_needs_a_place(store, form, name):
    assert refused(called(store, "01A", "--format", form)).name == name


def test_without_a_name_it_is_about_what_ran_last(store):
    assert called(store).stdout == called(store, "01B").stdout
    empty = store.with_name("empty.db")
    Store.open(empty)
    assert refused(called(empty)).name == "none-yet"


def test_a_run_is_exported_as_parquet(store):
    from pgpaces.cli.runs import export

    result = CliRunner().invoke(export, ["01A", "--format", "parquet", "--store", str(store)])
    assert result.exit_code == 0, result.output
    read = arro3.io.read_parquet(io.BytesIO(result.stdout_bytes)).read_all()
    assert sum(value.as_py() for value in read["due"]) == 4
