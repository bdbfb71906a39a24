"""A script of 40 MB in one line, from the command line to the store: memory, and what is kept."""

import subprocess
import sys

import pytest
from tests.commands import Command
from tests.folders import ROOT

from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres
SIZE = 40_000_000
# What a command has in memory at most, behind all that it says.
MEASURED = """
import runpy, sys
from tests.memory import peak_bytes
try:
    runpy.run_module("pgpaces", run_name="__main__", alter_sys=True)
finally:
    print(peak_bytes(), file=sys.stderr)
"""


@pytest.mark.slow
def test_a_run_of_a_long_script_takes_memory_in_proportion_and_keeps_its_beginning(
    pg15, pgpaces_home, tmp_path
):
    pgpaces = Command(pgpaces_home, tmp_path / "results.db")
    peaks = []
    for name, size in (("small", 100), ("big", SIZE)):
        script = tmp_path / f"{name}.sql"
        script.write_text(f"SELECT length('{'x' * size}');\n")
        words = ["run", "-f", str(script), "-t", "1", "-c", "1", "--target", pg15.dsn()]
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], env=pgpaces.environment(), cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stderr.split()[-1]))
    grown = (peaks[1] - peaks[0]) / SIZE
    assert grown < 4, f"{grown:.2f} times its size"
    store = Store.open(pgpaces.store)
    trial = store.load(store.find("last"))
    (kept,) = trial.workload.scripts
    assert (len(kept.text), kept.length) == (2**20, script.stat().st_size)
    assert "long-scripts-unexplained" in [note.name for note in trial.notes]
    assert store.size_bytes() < 20_000_000
