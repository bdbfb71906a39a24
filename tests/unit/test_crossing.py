"""Up to where a load holds, from where it does not, and what is not known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.validity import Validity
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.spec.design import Cell, Design, Factor
from pgpaces.spec.result import Estimate, Finding
from tests.unit.experiments import WORKERS, experiment, made

ENDS = {"h": (0.0, 0.02), "b": (0.10, 0.30), "?": (0.02, 0.10)}
SAID = {"h": "meets", "b": "misses", "?": "unknown"}


def row(clients: int, said: str, other: str = "x", sound: bool = True) -> Row:
    low, high = ENDS[said]
    missed = Estimate((low + high) / 2, low, high, 500)
    cell = Cell((("clients", str(clients)), ("set.a", other)))
    return Row(cell, trials=(None,), sound=sound, missed=missed)  # type: ignore[arg-type]


def line(said: str, other: str = "x") -> crossing.Line:
    return crossing.Line(
        (("set.a", other),), tuple(row(n, each, other) for n, each in enumerate(said, 1))
    )


@pytest.mark.parametrize(
    ("said", "held", "broke", "unknown", "irregular"),
    [
        ("hhbb", 2, 3, [], False),
        ("hh?b", 2, 4, [3], False),
        ("hhhh", 4, None, [], False),
        ("bbbb", None, 1, [], False),
        ("????", None, None, [1, 2, 3, 4], False),
        ("?h?b", 2, 4, [1, 3], False),
        ("hbhb", 1, 2, [], True),
        ("hb?b", 1, 2, [], False),
    ],
)
def test_the_break_lies_between_what_held_and_what_did_not(
    said: str, held: int | None, broke: int | None, unknown: list[int], irregular: bool
) -> None:
    found = crossing.find_crossing(line(said), 0.05)

    def level(row: Row | None) -> int | None:
        return None if row is None else int(crossing.level_of(row, "clients"))

    assert (level(found.meets), level(found.misses)) == (held, broke)
    assert [level(each) for each in found.unknown] == unknown
    assert found.irregular is irregular


@given(st.text("hb?", min_size=1, max_size=8))
def test_what_held_is_always_below_what_broke(said: str) -> None:
    found = crossing.find_crossing(line(said), 0.05)
    if found.meets and found.misses:
        assert int(found.meets.cell.levels[0][1]) < int(found.misses.cell.levels[0][1])


@pytest.mark.parametrize("said", "hb?")
def test_a_verdict_needs_the_whole_interval_on_one_side(said: str) -> None:
    assert crossing.verdict(row(1, said), 0.05) == SAID[said]


def test_nothing_is_concluded_from_trials_that_are_not_valid() -> None:
    assert crossing.verdict(row(1, "h", sound=False), 0.05) == "unknown"


def test_a_setting_moves_the_break_where_one_level_holds_and_another_does_not() -> None:
    found = [
        crossing.find_crossing(line("hhb", "x"), 0.05),
        crossing.find_crossing(line("hbb", "y"), 0.05),
    ]
    moved = crossing.shift(found, "set.a", "clients", missed_max=0.05)
    ((better, worse),) = moved.pairs
    assert (better.cell.levels, worse.cell.levels) == (
        (("clients", "2"), ("set.a", "x")),
        (("clients", "2"), ("set.a", "y")),
    )
    same = crossing.shift(
        [found[0], crossing.find_crossing(line("hhb", "y"), 0.05)],
        "set.a",
        "clients",
        missed_max=0.05,
    )
    assert same.pairs == ()
    assert same.decided
    blind = crossing.shift(
        [found[0], crossing.find_crossing(line("???", "y"), 0.05)],
        "set.a",
        "clients",
        missed_max=0.05,
    )
    assert not blind.decided


@pytest.mark.parametrize(
    ("level", "value"),
    [
        ("4", 4), ("1e3", 1000), ("-1", -1), ("30/min", 0.5), ("10/s", 10), ("500ms", 500),
        ("2 s", 2000), ("64MB", 64 * 2**20), ("4kB", 4096), ("on", None), ("", None),
        ("1e999", None), ("4 apples", None), ("4;5", None),
    ],
)  # fmt: skip
def test_levels_are_numbers_with_their_units(level: str, value: float | None) -> None:
    assert crossing.quantity(level) == value


def test_the_main_factor_is_the_load_with_most_levels_and_else_any_with_numbers() -> None:
    clients, rate = Factor("clients", ("1", "2")), Factor("rate", ("1/s", "2/s", "3/s"))
    memory = Factor("set.work_mem", ("1MB", "2MB", "4MB", "8MB"))
    names = Factor("set.jit", ("on", "off"))
    assert crossing.main_factor([clients, memory, rate]) == rate
    assert crossing.main_factor([names, memory]) == memory
    assert crossing.main_factor([names]) is None
    assert crossing.main_factor([Factor("server", ("15", "18"))]) is None, "versions are names"


def test_the_words_say_what_held_what_broke_and_what_moves_it() -> None:
    plan = Design((Factor("clients", ("2", "8")), Factor(WORKERS, ("0", "2"))), trials=2)
    digests = [made(slot, 40) for slot in plan.slots()]
    page = gather(digests, About(datetime.now(UTC), "0"), experiment(design=plan))
    said = [sentence.text for sentence in page.answer]
    assert said[0] == (
        "With max_parallel_workers_per_gather = 0 it meets the limit up to 2 clients and misses it"
        " from 8 clients; unknown in between."
    )
    assert any(
        text.startswith("A cell meets the limit if at most 5% of what was due") for text in said
    )
    assert any(text.startswith("Least missed: clients = 2") for text in said)
    assert not any("no difference" in text for text in said)


def test_without_a_limit_nothing_is_said_to_hold() -> None:
    from msgspec.structs import replace

    plan = Design((Factor("clients", ("2", "8")),))
    digests = [made(slot, 20) for slot in plan.slots()]
    digests = [
        replace(d, trial=replace(d.trial, plan=d.trial.plan.but(limit_ns=None))) for d in digests
    ]
    page = gather(digests, About(datetime.now(UTC), "0"), experiment(design=plan))
    text = " ".join(sentence.text for sentence in page.answer)
    assert "holds up to" not in text
    assert "There was no latency limit" in text


@pytest.mark.parametrize("cells", [1, 2])
def test_without_a_limit_an_invalid_cell_is_never_the_one_with_the_highest_throughput(
    cells: int,
) -> None:
    from msgspec.structs import replace

    plan = Design((Factor("clients", ("2", "8")),))
    digests = [made(slot, 20) for slot in plan.slots()]
    digests = [
        replace(d, trial=replace(d.trial, plan=d.trial.plan.but(limit_ns=None))) for d in digests
    ]
    page = gather(digests, About(datetime.now(UTC), "0"), experiment(design=plan))
    ranked = sorted(page.rows, key=lambda row: row.rate.value if row.rate else 0.0, reverse=True)
    assert f"Highest throughput with clients = {dict(ranked[0].cell.levels)['clients']}" in said_of(
        page
    )

    invalid = {row.cell.key for row in ranked[:cells]}
    late = Validity("invalid", (Finding("generator", "invalid", "the generator was late"),))
    digests = [
        replace(d, summary=replace(d.summary, validity=late))
        if d.trial.place and d.trial.place.cell in invalid
        else d
        for d in digests
    ]
    page = gather(digests, About(datetime.now(UTC), "0"), experiment(design=plan))
    if cells == 1:
        other = dict(ranked[1].cell.levels)["clients"]
        assert f"Highest throughput with clients = {other}" in said_of(page)
    else:
        assert "Which has the highest throughput is unknown: no trial is valid" in said_of(page)


def said_of(page: Page) -> str:
    return " ".join(sentence.text for sentence in page.answer)


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("clients", "1", "1 client"),
        ("users", "20", "20 users"),
        ("rate", "5", "5/s"),
        ("rate", "30/min", "30/min"),
        ("pace", "1/s", "1/s per user"),
        ("scale", "7", "scale 7"),
    ],
)
def test_amounts_are_said_as_people_say_them(name: str, level: str, said: str) -> None:
    assert words.amount(name, level) == said


def test_nothing_run_is_nothing_known() -> None:
    page = gather([], About(datetime.now(UTC), "0"), experiment())
    assert [s.text for s in page.answer] == ["Nothing was run yet, so nothing is known."]
    assert page.missing == len(experiment().design.slots())
