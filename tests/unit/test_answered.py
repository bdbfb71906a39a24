"""Commands give the frozen answers about stored trials."""

import contextlib
import json
import shutil
import sqlite3

import msgspec
import pytest
from click.testing import CliRunner

from pgpaces.analysis.digest import digest
from pgpaces.cli.main import cli
from pgpaces.show.data import Document
from pgpaces.store import digests
from pgpaces.store.store import Store

from . import answered


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return answered.unpacked(tmp_path_factory.mktemp("answered"))


@pytest.mark.parametrize("line", list(answered.questions()))
def test_an_answer_is_the_frozen_one(line, store):
    assert answered.answer(line, store) == answered.frozen(line).read_text(encoding="utf-8")


def numbers(document):
    """All of a document, in its order."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return [number for each in document for number in numbers(each)]
    return [float(document)] if isinstance(document, int | float) else []


def test_rules_that_change_what_a_digest_says_have_a_new_version(store):
    with contextlib.closing(sqlite3.connect(store)) as connection:
        stored = dict(connection.execute("SELECT id, digest_version FROM trial"))
    assert set(stored.values()) == {digests.VERSION}, (
        "python -m tests.unit.answered makes them anew"
    )
    opened = Store.existing(store)
    for id_ in stored:
        [old] = opened.digests([id_])
        new = digest(opened.load(id_))
        was, now = (numbers(json.loads(digests.text(each))) for each in (old, new))
        assert was == pytest.approx(now, rel=1e-6, nan_ok=True), (
            f"{id_}: raise VERSION in digest.py"
        )


def test_every_answer_in_json_has_the_published_form():
    documents = []
    for path in answered.FROZEN.iterdir():
        line, status, text = path.read_text(encoding="utf-8").split("\n", 2)
        if line.endswith("json") and status == "exit 0" and line.split()[0] not in (
            "disk", "export", "runs"
        ):  # fmt: skip
            documents.append(json.loads(text))
    assert len(documents) > 20
    for each in documents:
        for one in each if isinstance(each, list) else [each]:
            assert msgspec.convert(one, Document).verdict is not None


def test_every_frozen_answer_belongs_to_a_command_line_and_most_of_them_succeed():
    files = {answered.frozen(line) for line in answered.questions()}
    assert files == set(answered.FROZEN.iterdir())
    succeeded = [each for each in files if "\nexit 0\n" in each.read_text(encoding="utf-8")]
    assert len(succeeded) > 0.8 * len(files)


@pytest.mark.parametrize("name", ["swept", "capacity", "pairs"])
def test_an_experiment_without_trials_says_so_in_every_form(name, store, tmp_path):
    path = shutil.copy(store, tmp_path / "empty.db")
    with contextlib.closing(sqlite3.connect(path)) as emptied:
        for table in ("interval", "tally", "statement", "sample", "observed", "trial"):
            emptied.execute(f"DELETE FROM {table}")
        emptied.commit()
    for line in (f"show {name}", f"show {name} --json", f"report {name} --format html"):
        ended = CliRunner().invoke(cli, [*line.split(), "--store", str(path)])
        assert not ended.exception or isinstance(ended.exception, SystemExit), line
        assert ended.exit_code == 0, line
    csv = CliRunner().invoke(cli, ["report", name, "--format", "csv", "--store", str(path)]).output
    assert csv.splitlines()[1].split(",")[-4:] == ["0.0", "", "", "0"], "nothing was due"
