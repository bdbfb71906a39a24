"""The answers of every command about stored trials of every kind, frozen as values.

`make` below measured the trials once; they are in tests/golden/stored.db.xz. tests/golden/answers
has one file per command line. It holds values: sentences are replaced by "...", because words are
tested in screens only. `python -m tests.unit.answered` writes the answers again after an intended
change; `python -m tests.unit.answered FOLDER` measures the trials again, in a quarter of an hour.
"""

import contextlib
import json
import lzma
import os
import re
import shlex
import shutil
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
from pgpaces.core.errors import PgpacesError
from pgpaces.store.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
STORED, FROZEN = GOLDEN / "stored.db.xz", GOLDEN / "answers"
# The keys of an answer whose values are sentences.
PROSE = {"advice", "evidence", "invalid", "label", "notes", "said", "sentences", "text", "title"}
USERS = """
from pgpaces import task

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
    "imported": "import {F}/pgbench_log.1 --tag imported",
    **{f"good{n}": f"run select-only --rate 50 -L 20ms -T 3s {SHORT}" for n in range(9)},
}  # fmt: skip
FILES = {
    "fails.sql": "SELECT 1 / (random() < 0.8)::int;\n",
    "two.sql": "SELECT 1;\nSELECT count(*) FROM pg_class;\n",
    "slow.sql": "\\set ms random_exponential(5, 60, 3)\nSELECT pg_sleep(:ms / 1000.0);\n",
    "users/workload.toml": 'description = "Looks."\nkind = "users"\nusers = "users.py"\n'
    "init = []\n",
    "users/users.py": USERS,
    "pgbench_log.1": "0 0 900 0 1700000000 100000\n0 1 1000 0 1700000000 101100\n"
    "0 2 1100 0 1700000000 102300\n",
}
RUNS = ("single", "closed", "paced", "shaped", "failing", "statements", "bulk", "users",
        "standbys", "imported")  # fmt: skip
EXPERIMENTS = ("swept", "scaling", "capacity", "pairs")


def questions() -> Iterator[str]:
    """The command lines whose answers are frozen."""
    yield from ("runs --json", "runs -E --json", "disk --list --json")
    for name in RUNS:
        yield from (f"show {name} --json", f"why {name} --json")
        yield from (f"export {name}", f"export {name} --format json")
        yield from (f"report {name} --format {form}" for form in ("json", "csv"))
    for name in EXPERIMENTS:
        yield from (f"report {name} --format {form}" for form in ("json", "csv"))
        yield f"why {name} --json"
    yield from ("trend good --json", "check single --baseline good --json")
    yield from ("check good --baseline good --json", "compare pairs pairs --json")
    for a, b in ((1, 2), (1, 4)):
        sides = f"clients={a},set.work_mem=4MB clients={b},set.work_mem=4MB"
        yield f"compare {sides} --in swept --json"
        yield f"compare {sides} --in swept --metric p95 --json"
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
    # Processors differ in the last digits of floating-point numbers.
    found = re.sub(r"-?\d+\.\d{6,}(e-?\d+)?", lambda n: f"{float(n[0]):.9g}", found)
    found = re.sub(r'("made_at": )"[^"]*"', r'\1"{NOW}"', found)
    found = re.sub(r"\d+ (seconds?|minutes?|hours?|days?) ago", "{WHEN}", found)
    with contextlib.suppress(json.JSONDecodeError):
        found = json.dumps(_values(json.loads(found)), indent=1, ensure_ascii=False) + "\n"
    return f"{line}\nexit {done.exit_code}\n{found}"


def _values(answer: object, key: str = "") -> object:
    """An answer without its sentences."""
    if isinstance(answer, dict):
        return {each: _values(answer[each], each) for each in answer}
    if isinstance(answer, list):
        return [_values(each, key) for each in answer]
    if isinstance(answer, str) and key in PROSE and answer.count(" ") >= 3:
        return "..."
    return answer


def unpacked(folder: Path) -> Path:
    """The stored trials, as a file in a folder."""
    store = folder / "stored.db"
    store.write_bytes(lzma.decompress(STORED.read_bytes()))
    return store


def frozen(line: str) -> Path:
    """The file with the frozen answer of a command line."""
    return FROZEN / (re.sub(r"[^\w.]+", "-", line) + ".txt")


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
        if words[3] == "run":
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
        stored = "SELECT id, digest, digest_version FROM trial ORDER BY id"
        return connection.execute(stored).fetchall()


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    if sys.argv[1:]:
        make(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as scratch:
        digest(unpacked(Path(scratch)))
    shutil.rmtree(FROZEN, ignore_errors=True)
    FROZEN.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        trials = unpacked(Path(scratch))
        for question in questions():
            frozen(question).write_text(answer(question, trials), encoding="utf-8")
