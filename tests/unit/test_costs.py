"""What machines cost and what that buys: formulas, host files, and what reports say of it."""

import json
import os

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import costs as rules
from pgpaces.analysis.costs import economy
from pgpaces.analysis.digest import Track
from pgpaces.analysis.server_counters import written_by_server
from pgpaces.answers.costs import of_run, values
from pgpaces.answers.sweep.page import gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.locality import is_local
from pgpaces.core.series import Sample
from pgpaces.monitor import machine
from pgpaces.show import render
from pgpaces.spec import costs
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import Design, Experiment, Factor
from pgpaces.spec.result import Counts, Estimate
from pgpaces.spec.target import Target, TargetPlan
from pgpaces.trial import document
from pgpaces.trial.record import host_facts
from pgpaces.trial.request import costs_of_target
from tests.errors import raises
from tests.unit.experiments import WORKERS, experiment, made, moved
from tests.unit.reports import ABOUT
from tests.unit.sensors import collect
from tests.unit.trials import changed, trial

PI = Costs(price=85, lifetime_years=4)
AMOUNT = st.floats(0.01, 1e6)
USERS = st.integers(1, 100_000)


# Formulas


@pytest.mark.parametrize(
    ("given_", "month"),
    [
        ({"price_per_month": 10.0}, 10.0),
        ({"price_per_month": 0.0}, 0.0),
        ({"price_per_hour": 0.01}, 7.3),
        ({"price": 85.0, "lifetime_years": 4.0}, 85 / 48),
        ({}, None),
    ],
)
def test_a_month_costs_its_price(given_, month):
    one = Costs(**given_)
    found = economy([one])
    assert found.month == one.a_month == pytest.approx(month)
    assert found.year == pytest.approx(None if month is None else 12 * month)
    assert one.an_hour == pytest.approx(None if month is None else month / 730)


@pytest.mark.parametrize(
    ("machines", "month", "users_per_unit"),
    [
        ([Costs(price_per_month=5), Costs()], None, None),
        ([Costs(price_per_month=5), Costs(price_per_month=5, currency="EUR")], None, None),
        ([Costs(price_per_month=0.0)], 0.0, None),
    ],
    ids=["unknown", "two currencies", "free"],
)
def test_what_is_not_known_or_free_buys_no_share_of_it(machines, month, users_per_unit):
    found = economy(machines, Estimate(1, 1, 1, 1), users=3)
    assert (found.month, found.users_per_unit, found.per_unit) == (month, users_per_unit, None)
    assert economy([]) is None


PARTS = [("", 5), ("", 3), ("reporting", 7)]


@pytest.mark.parametrize(
    ("plan", "users"),
    [
        ({"model": "paced", "clients": 8}, 8),
        ({"model": "open", "clients": 8}, None),
        ({"model": "paced", "clients": 15,
          "components": [{"of": of, "clients": clients} for of, clients in PARTS]}, 8),
    ],
)  # fmt: skip
def test_users_are_those_of_the_trials_own_load(plan, users):
    assert rules.users_of(trial([], plan=plan)) == users


@given(AMOUNT, USERS, st.floats(0.1, 1e5))
def test_twice_the_price_halves_users_and_transactions_for_it(price, users, per_s):
    served = Estimate(per_s, per_s * 0.9, per_s * 1.1, 10)
    one = economy([Costs(price_per_month=price)], served, users)
    two = economy([Costs(price_per_month=2 * price)], served, users)
    assert one.users_per_unit == pytest.approx(2 * (two.users_per_unit or 0))
    assert one.per_unit.value == pytest.approx(2 * two.per_unit.value)
    assert one.per_unit.value * price == pytest.approx(per_s * 730 * 3600)
    assert one.per_unit.low < one.per_unit.value < one.per_unit.high


@given(st.lists(AMOUNT, min_size=1, max_size=6))
def test_machines_add_up(prices):
    found = economy([Costs(price_per_month=price) for price in prices], users=7)
    assert found.month == pytest.approx(sum(prices))
    assert found.users_per_unit == pytest.approx(7 / sum(prices))


@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_on_time_is_what_succeeded_without_what_was_late(on_time, late, lost):
    counts = Counts(on_time + late + lost, on_time, late, lost)
    share = late / counts.due
    given_ = Estimate(share, share * 0.9, min(1.0, share * 1.1), counts.due)
    succeeded = (on_time + late) / 60
    rate = Estimate(succeeded, succeeded * 0.9, succeeded * 1.1, 60)
    found = rules.on_time(rate, given_, counts)
    assert found.value == pytest.approx(on_time / 60)
    assert found.low <= found.value <= found.high
    assert rules.on_time(rate, given_, Counts()) is None


def measured():
    samples = [
        Sample(second, source, name, value, unit)
        for second in range(-2, 12)
        for source, name, value, unit in (
            ("host", "disk_sda_written", 1e6, "KB/s"),
            ("wal", "written", 4096.0, "B/s"),
            ("checkpoints", "checkpoints", float(second == 5), ""),
        )
    ]
    return trial([], samples=collect(samples))


def written(found):
    means = rules.means_of_samples(found.samples, 0, 10)
    return rules.written([(means, 10.0)])


@pytest.mark.parametrize(
    ("more", "bytes_a_second"),
    [
        ({}, 4096),
        # Blocks of WAL are begun again.
        ({("wal", "writes"): 3}, 4096 + 3 * 8192),
        ({("database", "temp_written"): 7}, 4103),
        # Data files, before PostgreSQL 16, and by pg_stat_io.
        ({("checkpoints", "written"): 2, ("background_writer", "written"): 1,
          ("background_writer", "written_by_backends"): 1}, 4096 + 4 * 8192),
        ({("checkpoints", "written"): 2, ("io", "checkpointer_written"): 16384,
          ("io", "client_written"): 100, ("io", "client_extended"): 1e9,
          ("io", "client_read"): 1e9}, 4096 + 16484),
        ({("standby1/wal", "written"): 1e9}, 4096),
    ],
)  # fmt: skip
def test_what_a_server_counts_is_wal_and_data_files(more, bytes_a_second):
    every = {("wal", "written"): 4096.0, ("host", "disk_sda_written"): 1e9, **more}
    samples = [Sample(3, source, name, value) for (source, name), value in every.items()]
    [written_] = written_by_server(collect(samples))
    assert list(written_.pairs) == [(3, bytes_a_second)]


def test_what_is_written_a_day_is_what_the_server_counted():
    made = measured()
    found = written(made)
    assert found.bytes_a_day.value == pytest.approx(4096 * 86_400)
    assert found.checkpoints == 1
    told = dict(values(economy([PI], written=found)))["written"]
    assert (told.name, told.values["bytes_a_day"]) == ("written-a-day", 4096 * 86_400)
    none = replace(made, samples=tuple(s for s in made.samples if s.name != "checkpoints"))
    assert written(none).checkpoints == 0
    reads = Sample(0, "database", "blocks_read", 9.0, "blocks/s")
    others = Sample(0, "host", "disk_sda_written", 1e6, "KB/s")
    only_reads = trial([], samples=collect([reads, others]))
    assert written(only_reads).bytes_a_day.value == 0, "whatever others do"
    unread = replace(made, samples=tuple(s for s in made.samples if s.source == "host"))
    assert written(unread) is None


# Values and files


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("prices = 5", "unknown-key", {"key": "prices", "near": "price"}),
        ('price_per_hour = "5"', "wrong-value", {"key": "price_per_hour"}),
        ("price_per_month = nan", "wrong-value", {"key": "price_per_month"}),
        ("price = 5\nlifetime_years = inf", "out-of-range",
         {"what": "lifetime_years", "value": "inf"}),
        ("price = 5", "price-without-lifetime", {}),
        ("price_per_month = 1\nprice_per_hour = 1", "cannot-combine",
         {"options": ["price_per_month", "price_per_hour"]}),
        ("price_per_hour = 1\ncurrency = ' '", "currency-empty", {}),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_host_file_is_said(tmp_path, text, name, values):
    path = tmp_path / "host.toml"
    path.write_text(text)
    with raises(PlanError, name, **values) as found:
        costs.find(path)
    assert str(path) in found.value.about
    for other, why in ((__file__, "TOML"), (tmp_path / "none.toml", "No such file")):
        with pytest.raises(PlanError, match=why):
            costs.find(other)


COSTS = st.builds(
    Costs, price_per_month=st.none() | AMOUNT, currency=st.text(min_size=1).filter(str.strip)
)


@given(COSTS)
def test_costs_are_read_from_a_store_as_they_were(one):
    assume(one.plain())
    assert costs.read(json.loads(json.dumps(one.plain()))) == one


@pytest.mark.parametrize(
    "stored", [None, 7, [], {}, *({"price_per_hour": n} for n in ("5", True, -1, 9**400)), {"a": 1}]
)
def test_costs_that_a_store_does_not_hold_are_not_known(stored):
    assert costs.read(stored) is None
    assert costs.machines_of([stored, PI.plain()]) == ()


def test_the_file_named_goes_before_the_variable_and_that_before_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("PGPACES_HOST_FILE", raising=False)
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    assert costs.find() is None
    for price, name in enumerate(("host.toml", "b.toml", "c.toml"), 1):
        (tmp_path / name).write_text(f"price_per_hour = {price}")
    assert costs.find() == Costs(price_per_hour=1)
    monkeypatch.setenv("PGPACES_HOST_FILE", str(tmp_path / "b.toml"))
    assert costs.find() == Costs(price_per_hour=2)
    assert costs.find(tmp_path / "c.toml") == Costs(price_per_hour=3)
    # A server elsewhere is on no machine of ours, unless a file is named for it.
    elsewhere, here = TargetPlan("postgresql://pi4/bench"), TargetPlan("postgresql://localhost/x")
    assert costs_of_target(elsewhere) is None
    assert costs_of_target(elsewhere, tmp_path / "c.toml") == Costs(price_per_hour=3)
    assert costs_of_target(here) == costs_of_target(TargetPlan()) == Costs(price_per_hour=2)


@pytest.mark.parametrize(
    ("keywords", "here"),
    [
        ({}, True),
        ({"host": "/run/postgresql"}, True),
        ({"host": "localhost"}, True),
        ({"host": "pi4"}, False),
        ({"host": "127.0.1.1"}, True),
        ({"host": "127.0.0.1,10.0.0.2"}, False),
        ({"host": "pi4", "hostaddr": "127.0.0.1"}, True),
        ({"host": "localhost", "hostaddr": "192.0.2.7"}, False),
    ],
)
def test_a_server_is_here_by_socket_and_loopback(keywords, here):
    assert is_local(keywords) is here


def test_a_stored_experiment_keeps_the_costs_of_its_targets():
    asked = Experiment("e", "reporting", Design(), targets=(Target("pi4", "host=pi4", costs=PI),))
    stored = document.write(asked, "", "")
    assert document.read(stored).targets[0].costs == PI
    stored["experiment"]["targets"][0]["costs"]["price_per_hour"] = -1
    with pytest.raises(StoreError, match="damaged"):
        document.read(stored)


def test_the_facts_of_a_machine_have_its_price():
    here = machine.facts().but(pid=os.getpid())
    assert host_facts(None) == host_facts(Costs()) == here
    assert host_facts(PI) == here.but(costs=(PI.plain(),))


# Reports


PLAN = Design(
    (Factor("clients", ("1", "4", "8")), Factor(WORKERS, ("0",))),
    fixed={"rate_per_client": "4/s", "latency_limit": "500ms"},
    trials=2,
)
MISSED_MAX = 0.2


def priced(found, one):
    track = Track("server", "written", "B/s", (102_400.0,) * len(found.series))
    ended = Track("checkpoints", "checkpoints", "", (0.1,) * len(found.series))
    about = found.trial.host.but(costs=(one.plain(),))
    another = changed(found.trial, host=about)
    return replace(found, trial=another, tracks=(*found.tracks, track, ended))


def page_of(one, plan=PLAN):
    digests = [priced(made(slot, 60), one) for slot in plan.asks()]
    return gather(digests, ABOUT, experiment(design=plan, missed_max=MISSED_MAX))


def costs_of(page):
    return page.machines


def test_users_are_those_of_the_largest_cell_that_held_in_all_forms():
    found = page_of(PI)
    (one,) = costs_of(found)
    assert one.passes
    assert (dict(one.row.cell.levels)["clients"], one.economy.users) == ("4", 4)
    assert one.economy.users_per_unit == pytest.approx(4 / (85 / 48))
    report = report_of(found)
    document_ = json.loads(render.render(report, "json"))["value"]["costs"][0]
    assert document_["users"] == 4
    for form in ("html", "md", "text"):
        said = " ".join(render.render(report, form, 200).decode().split())
        assert "about 1.77 USD a month, 21.2 a year" in said
        assert "2.26 users per USD a month" in said
        assert "about 8.85 GB a day" in said
    assert document_["users_per_unit"] == pytest.approx(one.economy.users_per_unit)


def test_no_user_is_sold_where_no_cell_holds_and_under_a_rate_for_all():
    plan = replace(PLAN, factors=(Factor("clients", ("8",)),))
    digests = [priced(made(slot, 60), PI) for slot in plan.asks()]
    found = gather(digests, ABOUT, experiment(design=plan, missed_max=0.001))
    said = render.render(report_of(found), "md").decode()
    assert "the cost per user is unknown" in said
    assert "users per" not in said
    plan = replace(PLAN, fixed={"rate": "4/s", "latency_limit": "500ms"})
    (one,) = costs_of(page_of(PI, plan))
    assert one.economy.users is None
    assert one.economy.per_unit is not None


def test_a_run_says_what_its_machine_costs():
    found = made(PLAN.asks()[0], 30)
    about = found.trial.host.but(costs=(PI.plain(),))
    worth = of_run(changed(found.trial, host=about, plan={"model": "paced"}), found.summary)
    assert worth.users == found.trial.setup.clients
    told = {each.name: each.values for _, each in values(worth, found.summary)}
    assert told["costs-month"]["month"] == pytest.approx(85 / 48)
    assert told["costs-users"]["users"] == worth.users
    assert of_run(found.trial, found.summary) is None


def test_machines_of_different_prices_are_told_apart():
    plan = Design((Factor("clients", ("1", "4")),), fixed={"rate_per_client": "4/s"})
    cheap, dear = Costs(price_per_month=2), Costs(price_per_month=8, currency="<b>EUR</b>|")
    two = replace(plan, factors=(*plan.factors, Factor("target", ("pi", "cloud"))))
    digests = [
        priced(moved(made(slot, 240), **dict(slot.cell.levels)), one)
        for slot in two.asks()
        for one in [cheap if ("target", "pi") in slot.cell.levels else dear]
    ]
    asked = experiment(design=two, targets=(Target("pi", ""), Target("cloud", "")))
    found = gather(digests, ABOUT, asked)
    alike = [Target("pi", "", kind="board"), Target("cloud", "", kind="board")]
    same = [moved(priced(d, cheap), **dict(d.trial.place.levels)) for d in digests if d.trial.place]
    kind = gather(same, ABOUT, experiment(design=two, targets=tuple(alike)))
    assert {one.name for one in costs_of(kind)} == {"each of cloud and pi"}
    names = {one.name: one.economy.users_per_unit for one in costs_of(found)}
    assert names == {"pi": pytest.approx(2.0), "cloud": pytest.approx(0.5)}
    assert (
        "0.5 users per <b>EUR</b>| a month" in render.render(report_of(found), "text", 200).decode()
    )
    assert "<b>EUR" not in render.render(report_of(found), "html").decode()
    assert "<b>" not in render.render(report_of(found), "md").decode()
