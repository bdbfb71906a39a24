"""Command lines by the hundred, and what is asked for by each: requests as flat text, or the error.

Sampled once from tables of options and their values, odd and contradictory ones among them. What
they asked for on the day they were frozen is in tests/golden/requests.json;
`python -m tests.unit.asked` writes it anew, for a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner
from msgspec import Struct

from pgpaces.cli import running
from pgpaces.cli.main import cli
from pgpaces.errors import PgpacesError
from pgpaces.experiment import trial as pipeline
from pgpaces.experiment.request import Request
from pgpaces.workload import Workload

FROZEN = Path(__file__).parents[1] / "golden" / "requests.json"
HOME = "{HOME}"
SERVER = "host=127.0.0.1 port=5432 user=tester dbname=postgres"

WORKLOADS = ("reporting", "tpcb-like", "select-only", "simple-update", "sensor", "garden")
LOADS = (
    "", "--rate 10 -L 500ms", "--rate-per-client 1/s -c 8 -L 500ms", "--users 8 --pace 1/s -L 1s",
    "-c 4 --think-time 10ms -L 200ms", "--rate 600/min -L 20us --policy skip",
)  # fmt: skip
PLACES = (
    "", "", f"--target '{SERVER}'", f"--target 'it={SERVER}'", "--standbys 1", "--pool pgbouncer",
    "--server 15 --data-dir {HOME}/disk", "--standbys 2 --pool pgpool --pool-size 5",
)  # fmt: skip
# Options of each command with values, apart by blanks. An option without values is a flag.
BOTH = {
    "-c": "1 64", "--rate": "2.5/s 1e3", "--users": "100", "--pace": "1/min", "--think-time": "0",
    "--think": "fixed exponential", "--start-every": "10ms 0", "--arrivals": "poisson even",
    "--shape": "steps:0.5:1:2 nonsense", "-L": "1s 0", "--policy": "skip run",
    "-T": "10s 2min 1h 0", "-t": "1 100", "--warmup": "0 5s", "--grace": "1s 0",
    "-M": "simple extended prepared", "-j": "1 4", "--poll": "auto epoll", "--max-tries": "1 10 0",
    "--on-error": "continue stop-client stop", "--kill-switch": "10", "-s": "1 3 10",
    "--data-seed": "1 7", "--server": "15 18 package:14", "--tls": "on off",
    "--node": "primary standbys standby1 pool moon", "--pool-mode": "session transaction",
    "--profile": "pi-4gb", "--set": "work_mem=4MB work_mem", "-D": "hot=5 1x=3", "--seed": "1 99",
    "--on-store-error": "continue stop", "--from-database": "shop", "-P": "0 5",
    "--beside": "'reporting rate=1/s' 'select-only think_time=1s'",
}  # fmt: skip
RUN = {
    "--script": "by_fk1 by_fk1@3 nosuch", "--describe": "", "--connect-each": "", "--fresh": "",
    "--verbose-errors": "", "--own": "mine", "--server-set": "shared_buffers=1GB",
    "--on-connect": "'SET work_mem = 1'", "--fail-if": "'missed > 5%' 'p99 > 1s'",
}  # fmt: skip
DRAFTED = {
    "--describe": "on off", "--connect-each": "on on,off", "--scripts": "by_fk1@3",
    "--variant": "log triggers,log", "--allow-alter-system": "", "--name": "mine",
    "--restart-command": "'systemctl restart it'", "--price-per-hour": "0.5",
}  # fmt: skip
SEVERAL = {
    "-c": "1,2,4", "--set": "work_mem=4MB,64MB", "--server": "15,18", "-M": "simple,prepared",
    "-L": "100ms,1s", "--scale": "1,2", "--rate": "5,10,20",
}  # fmt: skip
SWEEP = {"--trials": "1 3", "--missed": "1% 5", "--quick": "", "--within": "30min"}
CAPACITY = {
    "--goal": "'p99 <= 250ms' 'p99 <= 50'", "--by": "rate users clients", "--quick": "",
    "--strict": "", "--soak": "0 1min", "--missed": "1%",
}  # fmt: skip
COMPARE = {"--pairs": "4 8", "--metric": "p95 rate", "--delta": "2%"}


def lines(count: int = 300) -> Iterator[list[str]]:
    """So many command lines: half of them runs, then sweeps, capacities, comparisons."""
    draw = random.Random(21)
    for n in range(count):
        kind = ("run", "sweep", "run", "capacity", "run", "compare", "run", "sweep")[n % 8]
        table = BOTH | {"run": RUN, "sweep": DRAFTED | SWEEP, "capacity": DRAFTED | CAPACITY,
                        "compare": DRAFTED | COMPARE}[kind]  # fmt: skip
        workload = draw.choice(WORKLOADS)
        words = [kind, workload]
        if kind == "compare":
            words = [kind, "set.work_mem=4MB", "set.work_mem=64MB", "--run", workload]
        place = draw.choice(PLACES)
        place = place.replace("it=", "") if kind == "run" else place
        words += shlex.split(draw.choice(LOADS)) + shlex.split(place)
        # Mostly few: each contradiction hides what the others would do.
        for option in draw.sample(sorted(table), draw.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            if kind != "run" and option in SEVERAL and draw.random() < 0.4:
                words += [option, SEVERAL[option]]
            else:
                value = shlex.split(table[option])
                words += [option, draw.choice(value)] if value else [option]
        yield words


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf of a value with the way to it. Of a workload what tells it from others."""
    if isinstance(value, Workload):
        text = repr(value).replace(str(Path(pipeline.__file__).parents[1]), "")
        yield path, f"{value.name} {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from flat(getattr(value, name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, Mapping):
        for name in value:
            yield from flat(value[name], f"{path}.{name}")
    elif isinstance(value, list | tuple) and value:
        for at, each in enumerate(value):
            yield from flat(each, f"{path}[{at}]")
    else:
        yield path, repr(value.value if isinstance(value, Enum) else value)


class ReachedError(Exception):
    """Where a command would begin its work."""


def asked(words: Sequence[str], home: Path) -> dict[str, Any]:
    """What a command line asks for: an exit code and a message, or the leaves of its requests."""
    found: list[Request] = []

    def run(request: Request, *_: object) -> None:
        found.append(request)
        raise ReachedError

    def carry_out(planned: Any, *_: object) -> int:
        slots = sorted(planned.requests, key=repr)
        found.extend(planned.requests[slot] for slot in slots)
        return 0

    given = [word.replace(HOME, str(home)) for word in words]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, clean, clear=True))
        os.environ.update(PGPACES_HOME=str(home), HOME=str(home))
        stack.enter_context(mock.patch.object(pipeline, "run", run))
        stack.enter_context(mock.patch.object(running, "carry_out", carry_out))
        done = CliRunner().invoke(cli, given)
    if isinstance(done.exception, ReachedError) or found:
        told = [{k: _everywhere(v, home) for k, v in flat(each)} for each in found]
        same = {k: v for k, v in told[0].items() if all(each.get(k) == v for each in told)}
        apart = [{k: v for k, v in each.items() if k not in same} for each in told]
        return {"same": same, "apart": apart} if len(told) > 1 else {"same": same}
    if isinstance(done.exception, PgpacesError):
        error = done.exception
        return {"exit": error.exit_code, "said": [str(error.message), error.hint]}
    return {"exit": done.exit_code, "said": (done.stderr or repr(done.exception)).splitlines()}


def _everywhere(text: str, home: Path) -> str:
    """A leaf as it is on every machine and of every experiment."""
    return re.sub(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b", "{ID}", text.replace(str(home), HOME))


def frozen(home: Path) -> list[dict[str, Any]]:
    """The lines with what they ask for; of a request what differs from that of the first line."""
    usual = asked(["run", "reporting"], home)["same"]
    told = [{"line": "pgpaces run reporting", "same": usual}]
    for words in lines():
        what = asked(words, home)
        if "same" in what:
            what["same"] = {k: v for k, v in what["same"].items() if usual.get(k) != v} | {
                k: "absent" for k in usual if k not in what["same"] and not any(
                    k in each for each in what.get("apart", ()))
            }  # fmt: skip
        told.append({"line": shlex.join(["pgpaces", *words]), **what})
    return told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        FROZEN.parent.mkdir(exist_ok=True)
        FROZEN.write_text(json.dumps(frozen(Path(folder)), indent=1, ensure_ascii=False) + "\n")
