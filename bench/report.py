"""What a report takes: seconds, memory and size, of experiments that are made of numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from figures import Figure, Finding, Goal
from msgspec.structs import replace
from programs import ProgramError
from session import Session

from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import Ask, Design, Experiment
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.store import Store
from pgpaces.trial import document

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.unit import experiments

SECTION = "Report"
SECONDS = 600
# Each is the article's 18 cells, which are made once, over and over.
LARGE = Design({"clients": tuple(map(str, range(1, 101)))}, trials=10)
ARTICLE = experiments.design()


def section(_session: Session) -> Iterator[Finding]:
    """A report of 1,000 trials of 600 s, and the page of the article's 36."""
    models = [experiments.made(slot, SECONDS) for slot in ARTICLE.asks() if slot.block == 1]
    with tempfile.TemporaryDirectory() as home:
        store = Path(home) / "store.sqlite"
        _fill(store, "article", ARTICLE, models)
        _fill(store, "large", LARGE, models)
        for form, name in (("html", "page"), ("json", "JSON")):
            took, peak, _ = _report(store, "large", form)
            what = f"{name} of 1,000 trials of {SECONDS} s"
            yield Figure(SECTION, what, "s", (took,), goal=Goal("ours", "at most", 10.0))
            yield Figure(
                SECTION, f"{what}, memory", "MiB", (peak,), goal=Goal("ours", "at most", 500.0)
            )
        took, _, size = _report(store, "article", "html")
        yield Figure(SECTION, "page of 36 trials", "s", (took,))
        yield Figure(
            SECTION, "page of 36 trials, size", "MB", (size,), goal=Goal("ours", "at most", 3.0)
        )


def _fill(path: Path, name: str, design: Design, models: list[Digest]) -> None:
    """An experiment whose trials are those models in turn."""
    store = Store.open(path)
    asked = Experiment(name, "reporting", design)
    store.begin_experiment(
        ExperimentRow(
            name,
            name,
            datetime.now(UTC),
            None,
            "running",
            "0",
            document.write(asked, "pgpaces sweep", ""),
        )
    )
    for number, slot in enumerate(design.asks()):
        found = _as(models[number % len(models)], slot, name, number)
        store.begin(found.trial)
        store.finish(found.trial, {}, found)
    store.finish_experiment(name, "finished")
    store.close()


def _as(model: Digest, slot: Ask, name: str, number: int) -> Digest:
    """A model as another trial."""
    place = replace(
        model.trial.place,  # type: ignore[type-var]
        experiment=name,
        cell=slot.cell.key,
        levels=dict(slot.cell.levels),
        block=slot.block,
    )
    id_ = f"{name[:1].upper()}{number:025}"
    return replace(model, trial=replace(model.trial, id=id_, place=place))


def _report(store: Path, name: str, form: str) -> tuple[float, float, float]:
    """Seconds, MiB and MB of a report from the shell."""
    path = store.with_name(f"{name}.{form}")
    command = [sys.executable, "-m", "pgpaces", "report", name, "--store", str(store)]
    began = time.perf_counter()
    process = subprocess.Popen([*command, "--output", str(path)], stderr=subprocess.PIPE, text=True)
    # What this child took at most, and no other one.
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    if status:
        said = process.stderr.read() if process.stderr else ""
        raise ProgramError(f"pgpaces report failed: {said.strip()[-300:]}")
    return took, used.ru_maxrss / 1024, path.stat().st_size / 1e6
