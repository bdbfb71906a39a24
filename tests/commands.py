"""The command `pgpaces` as tests call it."""

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgpaces.spec.result import Trial
from pgpaces.store.store import Store

# `make test-versions` runs the tests of commands on each version of PostgreSQL.
SERVER = os.environ.get("PGPACES_TEST_SERVER")
# Clients think, as nothing here asks how fast a server is: without that a second of load takes all
# that a machine has.
SECOND = ("-T", "1s", "--warmup", "0", "-P", "0")
UNGUARDED = {
    **dict.fromkeys(("run", "load"), ("--no-guard",)),
    **dict.fromkeys(("sweep", "capacity", "compare"), ("--guard", "off")),
}
QUICK = ("--scale", "1", "--think-time", "20ms", *SECOND)


def value_of(printed: str) -> Any:
    """What a command printed as JSON; of the answer of a run its value."""
    document = json.loads(printed)
    of_run = isinstance(document, dict) and document.get("question") == "run"
    return document["value"] if of_run else document


@dataclass
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed as JSON; of the answer of a run its value."""
        assert self.code == 0, self.err
        return value_of(self.out)


@dataclass
class Command:
    """The command with a home and a store of its own."""

    home: Path
    store: Path

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        return kept | {"PGPACES_HOME": str(self.home), "PGPACES_STORE": str(self.store)}

    def start(self, *words: object, **more: Any) -> subprocess.Popen[str]:
        """The command as a child, for what is done to it while it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "pgpaces", *_on_server(words)],
            env=self.environment() | more.pop("env", {}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
        )  # fmt: skip

    def __call__(
        self, *words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Ended:
        """Runs the command inside this process: a child takes longer to start than most of them."""
        environment = self.environment() | dict(env or {})
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd or Path.cwd())
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            return _ended(_on_server(words), patch)

    def well(self, *words: object, **more: Any) -> Ended:
        """Runs a command that must not fail."""
        ended = self(*words, **more)
        assert ended.code == 0, ended.err
        return ended

    def prepared(self, run: str = "last") -> dict[str, Any]:
        """About the data of a run."""
        exported = self("export", run, "--format", "json").json()
        found: dict[str, Any] = exported["setup"]["workload"]["prepared"]
        return found

    def trial(self, run: str = "last") -> Trial:
        """A run as the store has it."""
        store = Store.existing(self.store)
        return store.load(store.find(run))

    def trials(self) -> list[Trial]:
        """Those of the only experiment."""
        store = Store.existing(self.store)
        [row] = store.experiments()
        return [store.load(placed.id) for placed in store.placed(row.id)]


def _on_server(words: Sequence[object]) -> list[str]:
    """The words, with the server of `make test-versions`.

    Without a guard, which any load may alarm on a busy machine, where any verdict may be FAIL, too.
    """
    if words[0] in ("run", "load", "sweep", "capacity"):
        words = (*words, "--allow-fail")
    if "--target" in words and not {"--guard", "--no-guard"} & {*words}:
        words = (*words, *UNGUARDED.get(str(words[0]), ()))
    if SERVER and words[0] in ("run", "sweep") and not {"--server", "--target"} & {*words}:
        words = (*words, "--server", SERVER)
    return [str(word) for word in words]


def _ended(words: list[str], patch: pytest.MonkeyPatch) -> Ended:
    from pgpaces.cli import main, pgbench

    with Path(os.devnull).open() as nothing, _written("stdout") as out, _written("stderr") as err:
        patch.setattr(sys, "argv", ["pgpaces", *words])
        patch.setattr(sys, "stdin", nothing)
        code = pgbench.main(words[1:], "pgpaces") if words[0] == "pgbench" else main._exit_code()
        return Ended(code, out(), err())


@contextlib.contextmanager
def _written(name: str) -> Iterator[Callable[[], str]]:
    """What this process and its children write to a stream."""
    kept_stream = getattr(sys, name)
    fd = 1 if name == "stdout" else 2
    kept = os.dup(fd)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), fd)
        stream = io.TextIOWrapper(os.fdopen(fd, "wb", closefd=False), "utf-8", kept_stream.errors)
        setattr(sys, name, stream)

        def text() -> str:
            stream.flush()
            file.seek(0)
            return file.read().decode()

        try:
            yield text
        finally:
            setattr(sys, name, kept_stream)
            os.dup2(kept, fd)
            os.close(kept)


def adds_up(answer: dict[str, Any]) -> bool:
    counts = answer["counts"]
    classes = ("on_time", "late", "skipped", "failed", "unfinished")
    return bool(counts["due"] == sum(counts[name] for name in classes))


def started(process: subprocess.Popen[str]) -> None:
    """Waits until the load runs."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("running "):
            return
    raise AssertionError("the load never ran")


def ctrl_c(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupts a command; what it wrote."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    return out, err


def interval_count(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        return int(connection.execute("SELECT count(*) FROM interval").fetchone()[0])
