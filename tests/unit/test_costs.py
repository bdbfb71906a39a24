"""The price of machines: host files, what is stored of them, and the monthly cost."""

import json
import os

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgpaces.analysis.server_counters import Written, written
from pgpaces.answers import run
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.locality import is_local
from pgpaces.core.series import Sample
from pgpaces.monitor import machine
from pgpaces.spec import costs
from pgpaces.spec.costs import Costs, MonthlyCost, monthly
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.target import Target, TargetPlan
from pgpaces.trial import document
from pgpaces.trial.record import host_facts
from pgpaces.trial.request import costs_of_target
from tests.errors import raises
from tests.unit.experiments import made
from tests.unit.sensors import collect
from tests.unit.trials import changed

PI = Costs(price_per_hour=0.01)


@pytest.mark.parametrize(
    ("machines", "month"),
    [
        ([{"price_per_month": 10.0}], 10.0),
        ([{"price_per_month": 0.0}], 0.0),
        ([{"price_per_hour": 0.01}, {"price_per_month": 5}], 12.3),
        ([], None),
        ([{"price_per_month": 5}, {}], None),
        ([{"price_per_month": 5}, {"price_per_month": 5, "currency": "EUR"}], None),
    ],
    ids=["a month", "free", "two machines", "none", "one unknown", "two currencies"],
)
def test_the_monthly_cost_of_machines_is_the_sum_of_their_prices(machines, month):
    found = monthly(machines)
    assert (found and found.month) == pytest.approx(month)
    assert found is None or found.year == pytest.approx(12 * found.month)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("prices = 5", "unknown-key", {"key": "prices"}),
        ('price_per_hour = "5"', "wrong-value", {"key": "price_per_hour"}),
        ("price_per_hour = -1", "wrong-value", {"key": "price_per_hour"}),
        ("price_per_month = nan", "wrong-value", {"key": "price_per_month"}),
        ("price_per_month = inf", "wrong-value", {"key": "price_per_month"}),
        ("price_per_month = 1\nprice_per_hour = 1", "cannot-combine",
         {"options": ["price_per_month", "price_per_hour"]}),
        ("price_per_hour = 1\ncurrency = ''", "wrong-value", {"key": "currency"}),
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


@given(
    st.builds(Costs, price_per_month=st.none() | st.floats(0, 1e6), currency=st.text(min_size=1))
)
def test_costs_are_read_from_a_store_as_they_were(one):
    assume(one.plain())
    assert costs.read(json.loads(json.dumps(one.plain()))) == one


@pytest.mark.parametrize(
    "stored", [None, 7, [], {}, *({"price_per_hour": n} for n in ("5", True, -1, 9**400)), {"a": 1}]
)
def test_costs_that_a_store_does_not_hold_are_not_known(stored):
    assert costs.read(stored) is None
    assert monthly([stored, PI.plain()]) is None


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
    assert document.read(stored).experiment.targets[0].costs == PI
    stored["experiment"]["targets"][0]["costs"]["price_per_hour"] = -1
    with pytest.raises(StoreError, match="damaged"):
        document.read(stored)


def test_a_trial_stores_the_price_of_its_machine_and_its_answer_has_the_monthly_cost():
    here = machine.facts().but(pid=os.getpid())
    assert host_facts(None) == host_facts(Costs()) == here
    assert host_facts(PI) == here.but(costs=(PI.plain(),))
    found = made(Design({"clients": ("1",)}).asks()[0], 30)
    priced = changed(found.trial, host=found.trial.host.but(costs=(PI.plain(),)))
    section = run.section(priced, found.summary, whole=True)
    assert ("costs", "about 7.3 USD a month, 87.6 a year") in section.parts[0].facts
    assert section.document()["costs"] == {"currency": "USD", "month": 7.3, "year": 87.6}
    assert monthly(found.trial.host.costs) is None
    assert monthly(priced.host.costs) == MonthlyCost("USD", 7.3)


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
def test_what_a_server_writes_a_day_is_wal_and_data_files(more, bytes_a_second):
    every = {("wal", "written"): 4096.0, ("host", "disk_sda_written"): 1e9, **more}
    samples = collect(Sample(3, source, name, value) for (source, name), value in every.items())
    assert written(samples, 0, 10) == Written(bytes_a_second * 86_400, 0)
    assert written([each for each in samples if each.source == "host"], 0, 10) is None
