"""Metrics of real loads: as Prometheus and a receiver of OTLP get them, and when these fail."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command, adds_up, value_of
from tests.needs import check
from tests.otlp import Receiver
from tests.processes import children, command_of
from tests.servers import free_port
from tests.waiting import until

from pgpaces.core.messages import message
from pgpaces.core.times import merge, value_at_rank
from pgpaces.spec.result import CLASSES, Trial
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres
LOAD = ("select-only", "--scale", "1", "--rate", "200", "-L", "7ms", "--warmup", "1s")
SCRAPE_S = 4.0


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def outcomes(trial: Trial, *, measured: bool) -> dict[str, int]:
    """What the store has, by outcome; measured, or in the warm-up."""
    sums: Counter[str] = Counter()
    for interval in trial.intervals:
        for tally in interval.tallies:
            if (tally.due_second >= 0) == measured:
                ended = (tally.on_time, tally.late, tally.skipped, sum(tally.failed.values()))
                sums.update(dict(zip(CLASSES, (*ended, tally.unfinished), strict=True)))
    return {name: sums[name] for name in CLASSES}


class Prometheus:
    """A real Prometheus that scrapes a port."""

    def __init__(self, folder: Path, target: int) -> None:
        config = folder / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {SCRAPE_S:g}s}}\n"
            "scrape_configs:\n  - job_name: pgpaces\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
        )
        self.url = f"http://127.0.0.1:{free_port()[0]}"
        listen = self.url.removeprefix("http://")
        options = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
        self.process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address={listen}"], stderr=subprocess.DEVNULL
        )
        until(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
            return True
        return False

    def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of an instant query."""
        query = urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def number(self, text: str) -> float:
        [(_, value)] = self.query(text)
        return value

    def scrapes(self) -> int:
        """How many there were so far, with those of a closed port."""
        return int(sum(value for _, value in self.query("count_over_time(up[1h])")))


@pytest.fixture
def prometheus(tmp_path):
    """A port to export to, and the Prometheus that scrapes it."""
    check("prometheus")
    port, _ = free_port()
    started = Prometheus(tmp_path, port)
    # It takes some seconds to look for its targets: a short load could be over by then.
    until(lambda: started.scrapes() > 0, "a first scrape")
    yield port, started
    started.process.kill()
    started.process.wait()


def last_of(trial: Trial, name: str, labels: str) -> str:
    """The last value of a metric of a trial, as a query."""
    return f'last_over_time({name}{{run="{trial.id}",{labels}}}[5m])'


def scraped_run(
    pgpaces: Command, port: int, scraping: Prometheus
) -> tuple[Trial, dict[str, dict[str, int]]]:
    """A run, and what Prometheus has of it after its last scrape, by phase and outcome."""
    ended = pgpaces.well("run", *LOAD, "-T", "6s", "--metrics", f"prometheus={port}")
    assert f"metrics: http://127.0.0.1:{port}/metrics" in ended.err
    trial, before = pgpaces.trial(), scraping.scrapes()
    # The port is free before its last scrape.
    until(lambda: is_free(port), "a free port")
    pgpaces.well("run", *LOAD, "-T", "1s", "--metrics", f"prometheus={port}")
    until(lambda: scraping.scrapes() >= before + 3, "two scrapes after the end")
    got: dict[str, dict[str, int]] = {"measured": {}, "warmup": {}}
    for phase, sums in got.items():
        query = last_of(trial, "pgpaces_transactions_total", f'phase="{phase}"')
        sums.update({labels["outcome"]: int(value) for labels, value in scraping.query(query)})
    return trial, got


def test_prometheus_has_the_sums_of_the_store_and_our_p95_within_its_bucket(pgpaces, prometheus):
    port, scraping = prometheus
    trial, got = scraped_run(pgpaces, port, scraping)
    assert got == {phase: outcomes(trial, measured=phase == "measured") for phase in got}

    def last(name: str, labels: str = "") -> str:
        return last_of(trial, name, labels)

    due = scraping.number(last("pgpaces_due_total", 'phase="measured"'))
    assert due == sum(outcomes(trial, measured=True).values()) > 1000
    buckets = last("pgpaces_latency_seconds_bucket", 'phase="measured"')
    p95_s = scraping.number(f"histogram_quantile(0.95, sum by (le) ({buckets}))")
    bounds = sorted(float(labels["le"]) for labels, _ in scraping.query(buckets))
    assert 0.007 in bounds
    times = merge(
        tally.latency
        for interval in trial.intervals
        for tally in interval.tallies
        if tally.due_second >= 0
    )
    exact_ns = value_at_rank(times, math.ceil(0.95 * times.count))
    assert exact_ns is not None
    # A time has 3 significant digits: one that is as long as a bound may be given as a bit longer.
    above = next(bound for bound in bounds if bound >= exact_ns / 1e9 * 0.999)
    below = max((bound for bound in bounds if bound < above), default=0.0)
    assert below <= p95_s <= above
    answered = pgpaces("show", trial.id, "--json").json()["latency"]["p95"]["value"]
    assert below * 1e3 * 0.99 <= answered <= above * 1e3 * 1.01
    late = outcomes(trial, measured=True)["late"]
    at_limit = scraping.number(
        last("pgpaces_latency_seconds_bucket", 'phase="measured",le="0.007"')
    )
    assert times.count - at_limit == late


def test_a_receiver_gets_the_sums_of_each_trial_of_a_sweep(pgpaces):
    receiver = Receiver()
    words = ("sweep", "select-only", "--scale", "1", "--rate", "50/s,100/s", "-L", "7ms")
    pgpaces.well(*words, "-T", "3s", "--warmup", "1s", "--name", "two",
                    "--metrics", f"otlp={receiver.url}")  # fmt: skip
    store = Store.open(pgpaces.store)
    trials = {row.id: store.load(row.id) for row in store.trials()}

    def received() -> dict[str, Counter[str]]:
        got: dict[str, Counter[str]] = {id_: Counter() for id_ in trials}
        for labels, point in receiver.points("pgpaces.transactions"):
            if labels["phase"] == "measured":
                got[labels["run"]][labels["outcome"]] += point.as_int
        return got

    # What is left is sent after the end of the sweep.
    expected = {id_: outcomes(trial, measured=True) for id_, trial in trials.items()}
    until(lambda: received() == expected, "the last numbers")
    # A busy machine sends less often than once a second.
    assert len(receiver.metrics) > len(trials)
    receiver.server.shutdown()


@pytest.mark.slow
def test_a_load_goes_on_when_its_exporter_is_killed(pgpaces):
    process = pgpaces.start("run", *LOAD, "-T", "5s", "--json", "--metrics", "prometheus=0")
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    next(line for line in lines if line.startswith("running "))
    time.sleep(2)
    [pid] = [each for each in children(process.pid) if b"web.companion" in command_of(each)]
    os.kill(pid, signal.SIGKILL)
    out, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert rest.count("warning: ") == 1
    assert message("companion-ended") in rest
    answer: dict[str, Any] = value_of(out)
    assert answer["state"] == "finished"
    assert adds_up(answer)
    trial = pgpaces.trial()
    assert [each.second for each in trial.intervals][:6] == [-1, 0, 1, 2, 3, 4]
