"""Command lines by the hundred, and what is asked for by each: requests as flat text, or the error.

The lines and what they ask for stand in tests/golden/requests.json, odd and contradictory ones
among them. `python -m tests.unit.asked` writes anew what they ask for, for a change that is meant;
a line is added by hand, as {"line": "pgpaces run ..."}.
"""

from __future__ import annotations

import hashlib
import json
import os
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

from pgpaces.cli import execute
from pgpaces.cli.main import cli
from pgpaces.errors import PgpacesError
from pgpaces.experiment import trial as pipeline
from pgpaces.experiment.request import Request
from pgpaces.workload import Workload

FROZEN = Path(__file__).parents[1] / "golden" / "requests.json"
HOME = "{HOME}"


def lines() -> list[list[str]]:
    """The words of each line."""
    return [shlex.split(each["line"])[1:] for each in json.loads(FROZEN.read_text())]


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
        stack.enter_context(mock.patch.object(execute, "carry_out", carry_out))
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
    first, *others = lines()
    usual = asked(first, home)["same"]
    told = [{"line": shlex.join(["pgpaces", *first]), "same": usual}]
    for words in others:
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
