"""Durations, rates and loads as people write them."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pgpaces
from pgpaces.cli.main import cli
from pgpaces.core.errors import PgpacesError, PlanError
from pgpaces.core.units import (
    SECOND_NS,
    duration_ns,
    duration_text,
    memory_text,
    ms_text,
    rate_per_s,
    rate_text,
    size_bytes,
    size_text,
)
from pgpaces.spec import options, spec
from pgpaces.spec.load import Load, Segment, TrialPlan
from pgpaces.spec.load import shape_of as parse
from tests.errors import raises


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
def test_a_duration_is_a_number_with_a_unit(text, ns):
    assert duration_ns(text) == ns


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "not-a-duration": (duration_ns, "|0|-1s|nan|nans|infs|5|5 parsecs|1s2|1_0s"),
    "duration-out-of-range": (duration_ns, "0s|1e400s|400d"),
    "not-a-rate": (rate_per_s, "|-1|nan|inf|1/fortnight|x"),
    "several-rates": (rate_per_s, "1,2"),
    "rate-out-of-range": (rate_per_s, "0|1e400|1e8"),
    "not-a-size": (size_bytes, "|5|5 XB"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_duration_rate_or_size_is_refused(name):
    read, texts = IMPOSSIBLE[name]
    for text in texts.split("|"):
        with raises(PlanError, name, value=text):
            read(text)


# Beyond, the number that is read has no nanoseconds.
@given(st.integers(0, 10**15))
def test_a_duration_that_is_shown_reads_as_the_same(ns):
    assert duration_ns(duration_text(ns), zero=True) == ns


@pytest.mark.parametrize(
    ("text", "rate"), [("1", 1.0), ("10/s", 10.0), ("30/min", 0.5), ("3600/h", 1.0), ("0.1", 0.1)]
)
def test_a_rate_is_a_number_with_or_without_a_time(text, rate):
    assert rate_per_s(text) == pytest.approx(rate)


@given(st.text(max_size=20))
def test_no_text_breaks_the_readers(text):
    for read in (duration_ns, rate_per_s):
        with contextlib.suppress(PlanError):
            assert read(text) > 0


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
def test_a_workloads_start_of_clients_is_for_its_own_kind_of_load(given, ns):
    text = spec.complete(given, {"start_every": "1s"}).get("start_every", "0s")
    assert duration_ns(text, zero=True) == ns
    assert spec.complete(given, {}).get("start_every") == given.get("start_every")


@pytest.mark.parametrize("rate", [1e8, 1e-7, math.nan])
def test_a_load_beyond_the_rates_that_there_are_is_refused(rate):
    with raises(PlanError, "out-of-range", value=f"{rate:g}/s"):
        Load("open", rate)


def test_scripts_may_have_limits_of_their_own():
    plan = TrialPlan(Load("open", 1.0), limit_ns=5, limits=(("b", 7), ("c", 9)))
    assert plan.limits_of(["a", "b", "c", "b"]) == ((1, 7), (2, 9), (3, 7))
    assert (plan.limit_max_ns, TrialPlan(Load("closed")).limit_max_ns) == (9, None)
    with raises(PlanError, "limit-of-unknown-script", script="c", scripts=["a", "b"]):
        plan.limits_of(["a", "b"])
    assert TrialPlan(Load("closed"), limits=(("a", 8 * SECOND_NS),)).grace == 8 * SECOND_NS


def test_policy_skip_needs_a_limit_for_every_script():
    plan = TrialPlan(Load("open", 1.0), policy="skip", limits=(("a", 5),))
    assert plan.limits_of(["a"]) == ((0, 5),)
    with raises(PlanError, "skip-needs-limits"):
        plan.limits_of(["a", "b"])
    tries = TrialPlan(Load("closed"), max_tries=0, transactions=5, limits=(("a", 5),))
    with raises(PlanError, "endless-tries"):
        tries.limits_of(["a", "b"])


@pytest.mark.parametrize(
    ("rate", "limit_ns", "free", "clients"),
    [
        (1.0, 500_000_000, None, 4),
        (10.0, 500_000_000, None, 20),
        (10.0, 500_000_000, 7, 7),
        (10.0, None, None, 40),
    ],
)
def test_clients_follow_from_rate_and_limit_where_nobody_names_them(rate, limit_ns, free, clients):
    assert TrialPlan(Load("open", rate), limit_ns=limit_ns).clients_for(free) == clients


def test_warm_up_and_grace_have_their_defaults():
    short = TrialPlan(Load("open", 1.0), duration_ns=10 * SECOND_NS)
    long = TrialPlan(Load("open", 1.0), duration_ns=3600 * SECOND_NS, limit_ns=9 * SECOND_NS)
    assert (short.warmup, long.warmup) == (SECOND_NS, 30 * SECOND_NS)
    assert (short.grace, long.grace) == (5 * SECOND_NS, 9 * SECOND_NS)


@given(st.floats(0, 9e14))
def test_no_size_is_written_with_an_exponent(size):
    assert "e" not in f"{size_text(round(size))}{memory_text(round(size))}"


MINUTE_NS = 60 * SECOND_NS
TEXTS = st.one_of(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=9).map(
        lambda found: "steps:" + ":".join(f"{m:.4f}" for m in found)
    ),
    st.tuples(st.floats(0, 100), st.floats(0.01, 100)).map("ramp:{0[0]:.4f}:{0[1]:.4f}".format),
    st.tuples(st.floats(0, 100), st.integers(1, 900)).map("burst:{0[0]:.4f}:{0[1]}ms:1s".format),
    st.just("day"),
)


def mean(segments: tuple[Segment, ...], duration_ns: int) -> float:
    """The mean multiplier: the sum of the trapezoids over the length."""
    ends = [*(start for start, _, _ in segments[1:]), duration_ns]
    parts = ((end - s[0]) * (s[1] + s[2]) / 2 for s, end in zip(segments, ends, strict=True))
    return math.fsum(parts) / duration_ns


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("constant", ()),
        ("steps:0.5:1:2", ((0, 0.5, 0.5), (20 * SECOND_NS, 1, 1), (40 * SECOND_NS, 2, 2))),
        ("ramp:0.5:2", ((0, 0.5, 2.0),)),
        ("burst:4:5s:40s", ((0, 1, 1), (35 * SECOND_NS, 4, 4), (40 * SECOND_NS, 1, 1))),
        (" ramp:0:.5 ", ((0, 0.0, 0.5),)),
    ],
)
def test_a_text_becomes_segments(text, segments):
    assert parse(text).segments(MINUTE_NS) == segments
    assert str(parse(text)) == text.strip()


def test_a_day_goes_from_night_to_night_and_has_the_rate_in_the_mean():
    day = parse("day").segments(96 * SECOND_NS)
    assert (day[0][1], day[48][1], day[-1][2]) == pytest.approx((0.2, 1.8, 0.2))
    assert mean(day, 96 * SECOND_NS) == pytest.approx(1)
    for start, low, _ in day:
        assert low == pytest.approx(1 - 0.8 * math.cos(2 * math.pi * start / 96e9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("steps:0.5:1:3", 1.5), ("ramp:0.5:2", 1.25), ("burst:4:10s:1min", 1.5), ("day", 1)],
)
def test_the_mean_of_a_shape_is_the_one_that_it_says(text, expected):
    assert mean(parse(text).segments(60 * MINUTE_NS), 60 * MINUTE_NS) == pytest.approx(expected)


@given(TEXTS, st.integers(SECOND_NS, 300 * SECOND_NS))
def test_segments_lie_in_the_trial_in_order_and_below_the_peak(text, length_ns):
    found = parse(text)
    segments = found.segments(length_ns)
    starts = [start for start, _, _ in segments]
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] < length_ns
    ends = list(itertools.chain.from_iterable((low, high) for _, low, high in segments))
    assert min(ends) >= 0
    assert max(ends) == pytest.approx(found.peak)


@pytest.mark.parametrize(
    "text",
    [
        "", "steps", "steps:1", "steps:1:x", "steps:0:0", "steps:1:-1", "steps:1:nan", "ramp:1",
        "ramp:1:2:3", "ramp:0:0", "burst:4", "burst:4:10s", "burst:4:1min:1min", "burst:4:0s:1min",
        "burst:x:1s:1min", "day:2", "constant:1", "week", "steps:1:1001",
    ],
)  # fmt: skip
def test_what_is_no_shape_is_refused_by_its_name(text):
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert text in caught.value.message
    names = ("not-a-shape", "not-a-multiplier", "shape-zero", "burst-fills-period")
    assert caught.value.name in names or "0s" in text


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text):
    with contextlib.suppress(PlanError):
        assert parse(text).peak > 0


def test_bursts_that_do_not_fit_a_trial_are_refused():
    with raises(PlanError, "burst-after-end", shape="burst:4:10s:1min"):
        parse("burst:4:10s:1min").segments(50 * SECOND_NS)
    with raises(PlanError, "too-many-bursts", count=30_000, maximum=10_000):
        parse("burst:4:1ms:2ms").segments(MINUTE_NS)
    assert len(parse("burst:4:10s:1min").segments(51 * SECOND_NS)) == 2


HUGE = str(2**70)
ENDLESS = "9" * 5000
OPTIONS = {
    "run select-only": "-c -j -t -s -P --users --max-tries --seed --data-seed --pool-size",
    "run": "-f x.sql@",
    "sweep select-only --dry-run": "-c -j -t -s -P --users --max-tries --seed --data-seed --trials",
    "capacity select-only -L 1s --dry-run": "--seed -j --max-tries -s",
    "compare a b --run select-only": "--pairs --same --seed",
    "runs": "-n",
    "observe": "-n",
    "disk . --yes": "--runs",
    "workload from-statements x": "--top",
}


def words() -> list[list[str]]:
    return [
        [*command.split(), option, number]
        for command, options in OPTIONS.items()
        for option in options.split()
        if option.startswith("-")
        for number in (HUGE, ENDLESS, "-1")
        if option != "-f"
    ]


@pytest.mark.parametrize("given", words(), ids=lambda given: " ".join(given)[:60])
def test_a_number_that_is_too_large_is_refused_by_every_command(tmp_path, monkeypatch, given):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, given)
    error = done.exception
    code = error.exit_code if isinstance(error, PgpacesError) else done.exit_code
    assert code == 2, (error, done.output)
    assert "No such" not in done.output
    assert "Missing" not in done.output


@pytest.mark.parametrize(
    ("value", "rates", "times"),
    [(0.1234, "0.123", "0.123"), (99.94, "99.9", "99.9"), (99.96, "100", "100"),
     (999.4, "999", "999"), (999.7, "1,000", "1,000"), (5234.4, "5,234", "5,234"),
     (1.157e-5, "0.0000116", "0.0000116"), (0.0, "0", "0")],
)  # fmt: skip
def test_no_rate_or_time_is_printed_with_an_exponent(value, rates, times):
    assert (rate_text(value), ms_text(value)) == (rates, times)


@pytest.mark.parametrize("command", ["run -f", "sweep --dry-run -c 1 -f"])
def test_a_weight_that_is_too_large_is_refused(tmp_path, command):
    (tmp_path / "x.sql").write_text("SELECT 1;\n")
    done = CliRunner().invoke(cli, [*command.split(), f"{tmp_path / 'x.sql'}@{2**40}"])
    assert isinstance(done.exception, PlanError), done.output
    assert done.exception.values["high"] == 2**31 - 1


@pytest.mark.parametrize(
    "name", [name for name, option in options.BY_NAME.items() if option.kind.span]
)
@pytest.mark.parametrize("value", [2**70, -1, 1.5, True, float("nan")], ids=str)
def test_a_trial_has_integers_that_fit(name, value):
    with raises(PlanError, "not-an-integer", what=name):
        spec.read({name: value})


def test_so_has_the_python_interface():
    with raises(PlanError, "not-an-integer", what="max_tries"):
        pgpaces.run("select-only", max_tries=2**70)
    with pytest.raises(PlanError):
        pgpaces.sweep("select-only", clients=[2**70])


@pytest.mark.parametrize(
    "text",
    [f"trials = {HUGE}", f"seed = {HUGE}", f"clients = {HUGE}", f"[factors]\nclients = [{HUGE}]"],
)
def test_so_has_an_experiment_file(tmp_path, text):
    file = tmp_path / "x.toml"
    file.write_text(f'workload = "select-only"\n{text}\n')
    done = CliRunner().invoke(cli, ["sweep", str(file), "--dry-run"])
    assert isinstance(done.exception, PlanError), done.output


@pytest.mark.parametrize(
    "text", [f"[load]\nclients = {HUGE}", f'[load]\ntransactions = "{HUGE}"', f"scale = {HUGE}"]
)
def test_so_has_a_workload(tmp_path, text):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "a.sql").write_text("SELECT 1;\n")
    (folder / "workload.toml").write_text(
        f'name = "own"\ndescription = "x"\nwrites = false\n'
        f'{text if text.startswith("scale") else ""}\nscripts = [{{ file = "a.sql" }}]\n'
        f"{'' if text.startswith('scale') else text}\n"
    )
    done = CliRunner().invoke(cli, ["sweep", str(folder), "-c", "1", "--dry-run"])
    assert isinstance(done.exception, PgpacesError), done.output
