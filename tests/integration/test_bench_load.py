"""The load of ours that the bench looks at from outside: both kinds of it run and are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.folders import ROOT

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("what", ["engine", "pipeline"])
def test_a_load_of_the_bench_runs_and_says_what_came_of_it(pg15, tmp_path, pgpaces_home, what):
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    order = {"script": str(script), "protocol": "prepared", "clients": 2, "transactions": 5}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    way = {"PGHOST": str(pg15.folder), "PGPORT": str(pg15.port), "PGUSER": "postgres"}
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "load.py", json.dumps(order | {"what": what})],
        env=kept | way | {"PGPACES_HOME": str(pgpaces_home)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["transactions"] == 10
    assert found["service_us"]["count"] == 10
