"""Every answering command over stored trials of every kind: what it says, frozen byte for byte.

The trials were measured once, by `make` below, and are in tests/golden/stored.db.xz; what commands
said of them on the day they were frozen is in tests/golden/answers.json.xz.
`python -m tests.unit.answered` writes the answers anew, for a change that is meant;
`python -m tests.unit.answered FOLDER` measures the trials anew, in a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.errors import PgpacesError
from pgpaces.store.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
STORED, FROZEN = GOLDEN / "stored.db.xz", GOLDEN / "answers.json.xz"
USERS = """
from pgpaces.users import task

@task
def look(db):
    db.execute("SELECT 1")
"""
SHORT = "--warmup 1s -P 0"
# How the trials were measured, each named by its tag; {F}: a folder with the files below.
MADE = {
    "single": f"run reporting -s 1 --rate 20 -L 40ms -T 12s {SHORT}",
    "closed": f"run tpcb-like -c 4 -T 6s -M prepared {SHORT}",
    "paced": f"run select-only --users 4 --pace 5/s -L 20ms -T 6s {SHORT}",
    "shaped": f"run select-only --rate 40 --shape steps:0.5:1:2 -L 20ms -T 9s {SHORT}",
    "failing": "run -f {F}/fails.sql --rate 20 -L 20ms -T 4s " + SHORT,
    "statements": "run -f {F}/two.sql@3 -f {F}/slow.sql --rate 30 -L 25ms -T 6s " + SHORT,
    "bulk": "run bulk-load -s 1 -t 3 -P 0",
    "users": "run {F}/users -c 2 -T 4s " + SHORT,
    "standbys": "run simple-update --standbys 1 -c 2 -T 5s "
    f"--background 'reporting node=standby1 rate=5/s latency_limit=100ms' {SHORT}",
    "sweep": "sweep reporting -s 1 --name swept --clients 1,2,4 --rate-per-client 6/s -L 60ms"
    " --set work_mem=4MB,64MB --trials 2 -T 4s --warmup 1s -P 0",
    "scaling": "sweep select-only --name scaling --clients 1,2,3,4,6,8 --trials 3 -T 1s"
    " --warmup 0 -P 0",
    "capacity": "capacity -f {F}/slow.sql --name capacity -c 4 --rate 20,400 -L 80ms --quick -P 0",
    "pairs": "compare set.work_mem=4MB set.work_mem=64MB --run select-only --name pairs --pairs 8"
    " --same 0 -c 2 -T 2s --warmup 0 -P 0",
    "imported": "import {F}/report.txt {F}/pgbench_log.1",
    **{f"good{n}": f"run select-only --rate 50 -L 20ms -T 3s {SHORT}" for n in range(9)},
}  # fmt: skip
FILES = {
    "fails.sql": "SELECT 1 / (random() < 0.8)::int;\n",
    "two.sql": "SELECT 1;\nSELECT count(*) FROM pg_class;\n",
    "slow.sql": "\\set ms random_exponential(5, 60, 3)\nSELECT pg_sleep(:ms / 1000.0);\n",
    "users/workload.toml": 'description = "Looks."\nkind = "users"\nusers = "users.py"\n'
    "init = []\n",
    "users/users.py": USERS,
    "report.txt": """transaction type: <builtin: select only>
scaling factor: 1
query mode: simple
number of clients: 1
number of threads: 1
number of transactions per client: 3
number of transactions actually processed: 3/3
latency average = 1.000 ms
tps = 1000.000000 (without initial connection time)
""",
    "pgbench_log.1": "0 0 900 0 1700000000 100000\n0 1 1000 0 1700000000 101100\n"
    "0 2 1100 0 1700000000 102300\n",
}
RUNS = ("single", "closed", "paced", "shaped", "failing", "statements", "bulk", "users",
        "standbys", "imported")  # fmt: skip
EXPERIMENTS = ("swept", "scaling", "capacity", "pairs")


def questions() -> Iterator[str]:
    """The command lines that are frozen."""
    yield from ("runs --json", "runs -E --json", "runs --limit 3", "disk --list --json")
    for name in RUNS:
        yield from (f"show {name} --json", f"show {name}", f"why {name} --json")
        yield from (f"export {name}", f"export {name} --format json")
        yield from (f"report {name} --format {form}" for form in ("json", "csv", "md", "text"))
    for name in EXPERIMENTS:
        yield from (f"report {name} --format {form}" for form in ("json", "csv", "md", "text"))
        yield f"why {name} --json"
    yield from ("forecast scaling --json", "forecast scaling --to 10", "forecast swept --json")
    yield from ("trend good --json", "trend good --metric p95", "check single --baseline good")
    yield from ("check good --baseline good --json", "compare pairs pairs --json")
    yield from (
        f"compare clients={a},set.work_mem=4MB clients={b},set.work_mem=4MB --in swept {form}"
        for a, b in ((1, 2), (1, 4)) for form in ("--json", "--metric p95")
    )  # fmt: skip
    yield "compare single paced --anyway --json"
    yield "report single closed paced --format json"


def answer(line: str, store: Path) -> str:
    """What a command prints, without what is of this place and moment."""
    place = {"COLUMNS": "100", "PGPACES_HOME": str(store.parent), "PGPACES_STORE": str(store)}
    with mock.patch.dict(os.environ, place):
        done = CliRunner().invoke(cli, shlex.split(line))
    text = done.stdout + done.stderr
    if isinstance(done.exception, PgpacesError):
        text += f"{done.exception} {done.exception.hint}"
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    found = text.replace(str(store.parent), "{HOME}")
    # Of floating-point numbers the last digits differ between processors.
    found = re.sub(r"-?\d+\.\d{6,}(e-?\d+)?", lambda n: f"{float(n[0]):.9g}", found)
    found = re.sub(r'("made_at": )"[^"]*"', r'\1"{NOW}"', found)
    found = re.sub(r"\d+ (seconds?|minutes?|hours?|days?) ago", "{WHEN}", found)
    return f"exit {done.exit_code}\n{found}"


def unpacked(folder: Path) -> Path:
    """The stored trials, as a file in a folder."""
    store = folder / "stored.db"
    store.write_bytes(lzma.decompress(STORED.read_bytes()))
    return store


def answers(folder: Path) -> dict[str, str]:
    """What every command line says."""
    store = unpacked(folder)
    return {line: answer(line, store) for line in questions()}


def frozen() -> dict[str, str]:
    """What they said when they were frozen."""
    found: dict[str, str] = json.loads(lzma.decompress(FROZEN.read_bytes()))
    return found


def make(folder: Path) -> None:
    """Measures the trials anew, on this machine."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store = folder / "stored.db"
    for name, line in MADE.items():
        words = [sys.executable, "-m", "pgpaces", *shlex.split(line.replace("{F}", str(folder)))]
        trust = ["--trust"] if name == "users" else []
        done = subprocess.run([*words, *trust, "--store", str(store)], check=False)
        sys.stdout.write(f"{name} {done.returncode}\n")
        if words[3] in ("run", "import"):
            tag = "good" if name.startswith("good") else name
            more = [*words[:3], "runs", "tag", tag, "last", "--store", str(store)]
            subprocess.run(more, check=True)
    STORED.write_bytes(lzma.compress(store.read_bytes(), preset=9))


def digest(store: Path) -> None:
    """Stores the digests of the present rules with the trials, where there are none of them."""
    before = _digests(store)
    opened = Store.existing(store)
    opened.digests([row.id for row in opened.trials()])
    opened.close()
    if _digests(store) == before:
        return
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    STORED.write_bytes(lzma.compress(store.read_bytes(), preset=9))


def _digests(store: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return connection.execute("SELECT id, digest FROM trial ORDER BY id").fetchall()


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    if sys.argv[1:]:
        make(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as scratch:
        digest(unpacked(Path(scratch)))
    with tempfile.TemporaryDirectory() as scratch:
        text = json.dumps(answers(Path(scratch)), indent=1, ensure_ascii=False)
    FROZEN.write_bytes(lzma.compress(text.encode(), preset=9))
