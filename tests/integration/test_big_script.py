"""A script of 40 MB in one line, from the command line to the store: memory, and what is kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.conftest import Postgres
from tests.integration.test_run import Command

from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres
SIZE = 40_000_000


def peak_bytes(process: subprocess.Popen[str]) -> int:
    """What a command that ends well has in memory at most."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read()
    return usage.ru_maxrss * 1024


def test_a_run_of_a_long_script_takes_memory_in_proportion_and_keeps_its_beginning(
    pg15: Postgres, pgpaces_home: Path, tmp_path: Path
) -> None:
    pgpaces = Command(pgpaces_home, tmp_path / "results.db")
    peaks = []
    for name, size in (("small", 100), ("big", SIZE)):
        script = tmp_path / f"{name}.sql"
        script.write_text(f"SELECT length('{'x' * size}');\n")
        words = ("run", "-f", script, "-t", "1", "-c", "1", "--target", pg15.dsn())
        peaks.append(peak_bytes(pgpaces.start(*words)))
    grown = (peaks[1] - peaks[0]) / SIZE
    assert grown < 4, f"{grown:.2f} times its size"
    store = Store.open(pgpaces.store)
    trial = store.load(store.find("last"))
    (kept,) = trial.workload.scripts
    assert (len(kept.text), kept.length) == (2**20, script.stat().st_size)
    assert any("scripts over 1 MiB are not explained" in note for note in trial.notes)
    assert store.size_bytes() < 20_000_000
