"""Generators on other machines: real ones by SSH, cut off, far away, with clocks of their own."""

import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from tests.faults.breaking import answer, findings
from tests.faults.machines import GATE, machines
from tests.integration import causes
from tests.needs import faketime, needs
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

FAKETIME = faketime()
# Connects to a port of Dask without the key of its cluster; exits with 7 if it is refused.
STRANGER = """
import sys
from distributed import Client, Security
security = Security.temporary() if sys.argv[1].startswith("tls") else None
try:
    Client(sys.argv[1], security=security, timeout=3)
except (OSError, TimeoutError):
    sys.exit(7)
"""


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.mark.parametrize("ipv6", [False, True])
def test_two_machines_by_ssh_make_one_load(start, tmp_path, ipv6):
    with machines(tmp_path, {}, {}, ipv6=ipv6):
        document = answer(start("--generators", "ssh:pgpt1,pgpt2", "-T", "5s"))
    assert document["validity"]["state"] == "valid"
    shares = {("generator-share", f"pgpt{number}") for number in (1, 2)}
    assert shares <= findings(document, "nothing")
    assert not [*tmp_path.glob("pgpt*/pgpaces-*")]


def test_a_stranger_gets_no_answer_from_the_ports_of_a_load_by_ssh(start, tmp_path):
    with machines(tmp_path, {}, {}) as [first, second]:
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "20s")
        ours = psutil.Process(child.pid).net_connections("tcp")
        listening = {
            (GATE, each.laddr.port)
            for each in ours
            if each.status == psutil.CONN_LISTEN and each.laddr.ip != "127.0.0.1"
        }
        listening |= {(first.address, port) for port in first.ports()}
        assert len(listening) >= 2
        for address, port in listening:
            for scheme in ("tcp", "tls"):
                words = [sys.executable, "-c", STRANGER, f"{scheme}://{address}:{port}"]
                inside = ["ip", "netns", "exec", second.name, *words]
                assert subprocess.run(inside, check=False).returncode == 7, (scheme, address, port)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=DEADLINE_S)


def test_a_machine_with_too_little_cpu_is_the_one_that_is_named(start, tmp_path):
    with machines(tmp_path, {}, {}) as [first, _], causes.group("cpu") as path:
        causes.take(path, first.pids())
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "12s")
        causes.cpu_limit(path, 2)
        document = answer(child)
    severe = findings(document, "invalid", "caution")
    assert ("generator-cpu-quota", "pgpt1") in severe
    assert ("generator-cpu-quota", "pgpt2") not in severe
    # On a busy machine the other one may be late too.
    assert [name for name, about in severe if "late" in name and "pgpt1" in about], severe


def test_no_machine_goes_on_without_the_program_that_started_it(start, reachable, tmp_path):
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE client_addr << '10.98.7.0/24'"
    with machines(tmp_path, {}, {}):
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "60s")
        child.kill()
        child.communicate()
        until(lambda: reachable.execute(sessions)[0][0] == 0, "the load ended")


def test_a_machine_far_away_begins_with_the_others_and_its_clock_is_less_certain(start, tmp_path):
    with machines(tmp_path, {}, {}) as [first, _]:
        first.delay(20)
        document = answer(start("--generators", "ssh:pgpt1,pgpt2", "-T", "5s"))
    assert not findings(document, "invalid")
    assert ("clock-apart", "pgpt1") in findings(document, "caution")


@needs("libfaketime")
@pytest.mark.parametrize(("fake", "apart"), [("+2h", False), ("+0 x1.02", True)])
def test_a_clock_that_is_elsewhere_is_right_and_one_that_runs_faster_is_noticed(
    start, tmp_path, fake, apart
):
    clock = {"LD_PRELOAD": FAKETIME, "FAKETIME": f'"{fake}"'}
    with machines(tmp_path, clock, {}):
        document = answer(start("--generators", "ssh:pgpt1,pgpt2", "-T", "8s"))
    if not apart:
        assert not findings(document, "invalid")
    else:
        names = {name for name, about in findings(document, "invalid", "caution") if about}
        assert names & {"clock-apart", "clock-apart-decides"}


@needs("libfaketime")
def test_a_clock_that_is_set_during_the_load_harms_nothing(start, tmp_path):
    offset = tmp_path / "offset"
    offset.write_text("+0")
    clock = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(offset)}
    clock |= {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    with machines(tmp_path, clock, {}):
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "8s")
        offset.write_text("+90s")
        document = answer(child)
    assert document["counts"]["on_time"] == document["counts"]["due"]
