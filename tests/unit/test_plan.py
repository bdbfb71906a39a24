"""Durations, rates and loads as people write them."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.cli import run as cli_run
from pgpaces.core.errors import PlanError
from pgpaces.core.units import (
    SECOND_NS,
    duration_ns,
    duration_text,
    measured_text,
    memory_text,
    rate_per_s,
    size_text,
)
from pgpaces.spec.levels import options_of
from pgpaces.spec.plan import Load, TrialPlan, choose_load, start_every_ns, trial_plan
from pgpaces.spec.shape import parse


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500ms", 500_000_000),
        ("1s", SECOND_NS),
        ("1.5 s", 1_500_000_000),
        ("10min", 600 * SECOND_NS),
        ("2h", 7200 * SECOND_NS),
        ("250us", 250_000),
        (".5s", 500_000_000),
        ("1e3ms", SECOND_NS),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0s",
        "-1s",
        "nan",
        "nans",
        "infs",
        "1e400s",
        "5",
        "5 parsecs",
        "1s2",
        "400d",
        "1_0s",
    ],
)
def test_an_impossible_duration_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(PlanError, match="duration"):
        duration_ns(text)


@pytest.mark.parametrize(
    "text", ["500ms", "200s", "90s", "10min", "1.5us", "0.5us", "100.001s", "36h", "5d"]
)
def test_a_duration_is_shown_as_it_is_typed(text: str) -> None:
    assert duration_text(duration_ns(text)) == text


# Beyond, the number that is read has no nanoseconds.
@given(st.integers(0, 10**15))
def test_a_duration_that_is_shown_reads_as_the_same(ns: int) -> None:
    assert duration_ns(duration_text(ns), zero=True) == ns


def test_a_measured_duration_is_shown_with_four_digits() -> None:
    assert [measured_text(ns) for ns in (3_736_123_456, 0, 200 * SECOND_NS)] == [
        "3.736s",
        "0s",
        "200s",
    ]


@pytest.mark.parametrize(
    ("text", "rate"), [("1", 1.0), ("10/s", 10.0), ("30/min", 0.5), ("3600/h", 1.0), ("0.1", 0.1)]
)
def test_a_rate_is_a_number_with_or_without_a_time(text: str, rate: float) -> None:
    assert rate_per_s(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e400", "1e8", "1/fortnight", "x"])
def test_an_impossible_rate_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="rate"):
        rate_per_s(text)


@given(st.text(max_size=20))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (duration_ns, rate_per_s):
        with contextlib.suppress(PlanError):
            assert read(text) > 0


def options(**given: Any) -> dict[str, Any]:
    names = ("rate", "rate_per_client", "clients", "users", "pace", "think_time", "shape")
    names = (*names, "start_every")
    return dict.fromkeys(names) | {"arrivals": "poisson", "think": "exponential"} | given


@pytest.mark.parametrize(
    ("given", "defaults", "model", "rate", "clients"),
    [
        ({"rate": "5"}, {}, "open", 5.0, None),
        ({"rate_per_client": "2", "clients": 3}, {}, "open", 6.0, 3),
        ({"users": 8, "pace": "1/s"}, {}, "paced", 1.0, 8),
        ({"clients": 4}, {"rate": "1/s"}, "open", 1.0, 4),
        ({"clients": 4, "think_time": "0"}, {"rate": "1/s"}, "closed", None, 4),
        ({}, {"rate": "1/s", "clients": "3"}, "open", 1.0, 3),
        ({}, {"rate": "1/s"}, "open", 1.0, None),
        ({}, {}, "closed", None, 1),
        ({"think_time": "1s", "clients": 2}, {}, "closed", None, 2),
    ],
)
def test_the_options_choose_the_load(
    given: dict[str, Any],
    defaults: dict[str, str],
    model: str,
    rate: float | None,
    clients: int | None,
) -> None:
    load, count = choose_load(options(**given), defaults)
    assert (load.model, load.rate, count) == (model, rate, clients)


@pytest.mark.parametrize(
    ("given", "ns"),
    [
        ({}, SECOND_NS),
        ({"clients": 3, "think_time": "1s"}, SECOND_NS),
        ({"start_every": "2s"}, 2 * SECOND_NS),
        ({"start_every": "0s"}, 0),
        ({"rate": "5/s"}, 0),
        ({"rate_per_client": "5/s"}, 0),
        ({"shape": "day"}, 0),
        ({"rate": "5/s", "start_every": "2s"}, 2 * SECOND_NS),
    ],
)
def test_a_workloads_start_of_clients_is_for_its_own_kind_of_load(
    given: dict[str, Any], ns: int
) -> None:
    assert start_every_ns(options(**given), {"start_every": "1s"}) == ns
    assert start_every_ns(options(**{**given, "start_every": None}), {}) == 0


def test_clients_that_would_come_when_the_trial_is_over_are_refused() -> None:
    closed = partial(TrialPlan, Load("closed"), clients=4, start_every_ns=SECOND_NS)
    assert closed(duration_ns=2 * SECOND_NS, warmup_ns=2 * SECOND_NS).clients == 4
    assert closed(duration_ns=None, transactions=1).clients == 4
    with pytest.raises(PlanError, match="last of 4 clients would come 3 s after"):
        closed(duration_ns=2 * SECOND_NS, warmup_ns=SECOND_NS)


@pytest.mark.parametrize(
    "given",
    [
        {"rate": "1", "users": 2, "pace": "1"},
        {"users": 2},
        {"pace": "1/s"},
        {"rate_per_client": "1"},
        {"clients": 2, "users": 2, "pace": "1"},
        {"rate": "1", "think_time": "1s"},
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        choose_load(options(**given), {})


def test_a_load_may_change_its_rate_and_says_so() -> None:
    load, _ = choose_load(options(rate="10", shape="steps:0.5:1:2"), {})
    assert str(load) == "open, 10/s, shape steps:0.5:1:2"
    assert str(choose_load(options(rate="10", shape="constant"), {})[0]) == "open, 10/s"
    paced, _ = choose_load(options(users=2, pace="1/s", shape="day"), {})
    assert str(paced) == "paced, 1/s per user, shape day"


@pytest.mark.parametrize("rate", [1e8, 1e-7, math.nan])
def test_a_load_beyond_the_rates_that_there_are_is_refused(rate: float) -> None:
    with pytest.raises(PlanError, match="out of range"):
        Load("open", rate)


def test_a_shape_that_a_load_or_a_trial_cannot_have_is_refused() -> None:
    with pytest.raises(PlanError, match="closed"):
        choose_load(options(clients=2, shape="day"), {})
    with pytest.raises(PlanError, match="takes the rate to"):
        choose_load(options(rate="9e6", shape="ramp:1:2"), {})
    load = Load("open", 1.0, shape=parse("burst:4:10s:1min"))
    with pytest.raises(PlanError, match="drawn over"):
        TrialPlan(load, transactions=5)
    with pytest.raises(PlanError, match="after the end"):
        TrialPlan(load, duration_ns=SECOND_NS)


def test_scripts_may_have_limits_of_their_own() -> None:
    plan = TrialPlan(Load("open", 1.0), limit_ns=5, limits=(("b", 7), ("c", 9)))
    assert plan.limits_of(["a", "b", "c", "b"]) == ((1, 7), (2, 9), (3, 7))
    assert (plan.limit_max_ns, TrialPlan(Load("closed")).limit_max_ns) == (9, None)
    with pytest.raises(PlanError, match="'c', which does not run"):
        plan.limits_of(["a", "b"])
    assert TrialPlan(Load("closed"), limits=(("a", 8 * SECOND_NS),)).grace == 8 * SECOND_NS


def test_policy_skip_needs_a_limit_for_every_script() -> None:
    plan = TrialPlan(Load("open", 1.0), policy="skip", limits=(("a", 5),))
    assert plan.limits_of(["a"]) == ((0, 5),)
    with pytest.raises(PlanError, match="every script"):
        plan.limits_of(["a", "b"])
    tries = TrialPlan(Load("closed"), max_tries=0, transactions=5, limits=(("a", 5),))
    with pytest.raises(PlanError, match="unlimited tries"):
        tries.limits_of(["a", "b"])


def test_levels_name_the_limits_of_scripts_and_the_shape() -> None:
    levels = {"rate": "5", "latency_limit": "500ms", "latency_limit.by=fk1": "200ms"}
    trial = options_of(levels | {"shape": "ramp:1:2"}, {"latency_limit": "1s"}).trial
    assert (trial.limit_ns, trial.limits) == (500_000_000, (("by=fk1", 200_000_000),))
    assert trial.load.shape == parse("ramp:1:2")
    own = options_of({"rate": "5", "latency_limit.a": "200ms"}, {"latency_limit": "1s"}).trial
    assert (own.limit_ns, own.limits) == (SECOND_NS, (("a", 200_000_000),))


@pytest.mark.parametrize(
    "limits", [("1s", "2s"), ("a=1s", "a=2s"), ("a=",), ("a",), ("a=0",), ("=",)]
)
def test_limits_that_cannot_be_are_refused(limits: tuple[str, ...]) -> None:
    context = cli_run.run.make_context("run", [f"--latency-limit={limit}" for limit in limits])
    with pytest.raises(PlanError, match="limit"):
        trial_plan(context.params, {})


def test_policy_skip_needs_a_limit_and_a_schedule() -> None:
    with pytest.raises(PlanError, match="limit"):
        TrialPlan(Load("open", 1.0), policy="skip")
    with pytest.raises(PlanError, match="closed"):
        TrialPlan(Load("closed"), policy="skip", limit_ns=1)


@pytest.mark.parametrize(
    ("rate", "limit_ns", "free", "clients"),
    [
        (1.0, 500_000_000, None, 4),
        (10.0, 500_000_000, None, 20),
        (10.0, 500_000_000, 7, 7),
        (10.0, None, None, 40),
    ],
)
def test_clients_follow_from_rate_and_limit_where_nobody_names_them(
    rate: float, limit_ns: int | None, free: int | None, clients: int
) -> None:
    assert TrialPlan(Load("open", rate), limit_ns=limit_ns).clients_for(free) == clients


def test_warm_up_and_grace_have_their_defaults() -> None:
    short = TrialPlan(Load("open", 1.0), duration_ns=10 * SECOND_NS)
    long = TrialPlan(Load("open", 1.0), duration_ns=3600 * SECOND_NS, limit_ns=9 * SECOND_NS)
    assert (short.warmup, long.warmup) == (SECOND_NS, 30 * SECOND_NS)
    assert (short.grace, long.grace) == (5 * SECOND_NS, 9 * SECOND_NS)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({}, (None, 1, 0)),
        ({"transactions": "3"}, (None, 3, 0)),
        ({"duration": "20s"}, (20 * 10**9, None, 0)),
        ({"duration": "20s", "warmup": "1s"}, (20 * 10**9, None, 10**9)),
    ],
)
def test_a_command_is_run_once_and_cold_unless_asked_otherwise(
    levels: dict[str, str], expected: tuple[int | None, int | None, int]
) -> None:
    found = options_of(levels, {"transactions": "1", "warmup": "0s"}).trial
    assert (found.duration_ns, found.transactions, found.warmup_ns) == expected


@pytest.mark.parametrize(
    ("size", "decimal", "binary"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (999_900, "1 MB", "976.5 KiB"),
        (1010 * 2**10, "1.03 MB", "1010 KiB"),
        (1.2e6, "1.2 MB", "1.144 MiB"),
        (3.4e8, "340 MB", "324.2 MiB"),
        (-3.4e8, "-340 MB", "-324.2 MiB"),
        (5e12, "5 TB", "4.547 TiB"),
    ],
)
def test_bytes_are_written_as_people_do(size: float, decimal: str, binary: str) -> None:
    assert (size_text(size), memory_text(size)) == (decimal, binary)


@given(st.floats(0, 9e14))
def test_no_size_is_written_with_an_exponent(size: float) -> None:
    assert "e" not in f"{size_text(round(size))}{memory_text(round(size))}"
