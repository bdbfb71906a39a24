"""Up to where a load holds, from where it does not, and what is not known."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.validity import Validity
from pgpaces.answers.sweep.page import About, gather
from pgpaces.answers.sweep.report import report
from pgpaces.core.findings import Finding
from pgpaces.spec.design import Cell, Design, Factor
from pgpaces.spec.result import Estimate
from tests.unit.experiments import experiment, made
from tests.unit.trials import planned

ENDS = {"h": (0.0, 0.02), "b": (0.10, 0.30), "?": (0.02, 0.10)}
SAID = {"h": "pass", "b": "fail", "?": "unknown"}


def row(clients, said, other="x", sound=True):
    low, high = ENDS[said]
    missed = Estimate((low + high) / 2, low, high, 500)
    cell = Cell((("clients", str(clients)), ("set.a", other)))
    return Row(cell, trials=(None,), sound=sound, estimates={"missed": missed})


@pytest.mark.parametrize(
    ("said", "irregular"),
    [("hhbb", False), ("hh?b", False), ("hhhh", False), ("bbbb", False), ("????", False),
     ("?h?b", False), ("hbhb", True), ("hb?b", False), ("b?h", True)],
)  # fmt: skip
def test_a_line_is_irregular_where_a_row_passes_above_one_that_fails(said, irregular):
    rows = [row(n, each) for n, each in enumerate(said, 1)]
    found = [*crossing.out_of_order([*rows[1:], rows[0]], "clients", 0.05)]
    assert found == ([(("set.a", "x"),)] if irregular else [])


@pytest.mark.parametrize("said", "hb?")
def test_a_verdict_needs_valid_trials_and_the_whole_interval_on_one_side(said):
    assert crossing.verdict(row(1, said), 0.05) == SAID[said]
    assert crossing.verdict(row(1, said, sound=False), 0.05) == "unknown"


def said_of(digests, plan):
    found = gather(digests, About(datetime.now(UTC), "0"), experiment(design=plan))
    return " ".join(report(found).top.sentences), found


@pytest.mark.parametrize("cells", [0, 1, 2])
def test_without_a_limit_an_invalid_cell_is_never_the_one_with_the_highest_throughput(cells):
    plan = Design({"clients": ("2", "8")})
    digests = [
        replace(d, trial=planned(d.trial, limit_ns=None, policy="run"))
        for d in (made(slot, 20) for slot in plan.asks())
    ]
    rows = said_of(digests, plan)[1].rows
    ranked = sorted(rows, key=lambda row: row.estimate("throughput").value, reverse=True)
    invalid = {row.cell.key for row in ranked[:cells]}
    late = Validity("invalid", (Finding("generator-limited"),))
    digests = [
        replace(d, summary=replace(d.summary, validity=late))
        if d.trial.place.cell in invalid
        else d
        for d in digests
    ]
    said, _ = said_of(digests, plan)
    if cells < 2:
        best = dict(ranked[cells].cell.levels)["clients"]
        assert f"with clients={best}" in said
    else:
        assert said.startswith("no trial is valid")


@pytest.mark.parametrize(
    ("level", "value"),
    [
        ("4", 4), ("1e3", 1000), ("-1", -1), ("30/min", 0.5), ("10/s", 10), ("500ms", 500),
        ("2 s", 2000), ("64MB", 64 * 2**20), ("4kB", 4096), ("on", None), ("", None),
        ("1e999", None), ("4 apples", None), ("4;5", None),
    ],
)  # fmt: skip
def test_levels_are_numbers_with_their_units(level, value):
    assert crossing.quantity(level) == value


def test_the_main_factor_is_the_load_with_most_levels_and_else_any_with_numbers():
    clients, rate = Factor("clients", ("1", "2")), Factor("rate", ("1/s", "2/s", "3/s"))
    memory = Factor("set.work_mem", ("1MB", "2MB", "4MB", "8MB"))
    names = Factor("set.jit", ("on", "off"))
    assert crossing.main_factor([clients, memory, rate]) == rate
    assert crossing.main_factor([names, memory]) == memory
    assert crossing.main_factor([names]) is None
    assert crossing.main_factor([Factor("server", ("15", "18"))]) is None, "versions are names"


def test_nothing_run_is_nothing_known():
    said, page = said_of([], experiment().design)
    assert said.startswith("no trial has run yet")
    assert page.missing == len(experiment().design.asks())
