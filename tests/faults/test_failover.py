"""A standby is promoted behind the primary's name: clients work there within two seconds."""

import json
import signal
import time

import pytest
from tests.commands import adds_up
from tests.faults.breaking import start_again
from tests.needs import needs, nss_wrapper
from tests.servers import standby_of

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
CLIENTS, RATE, LIMIT_S = 4, 200, 2.0
TABLE = "at timestamptz DEFAULT clock_timestamp(), pid int DEFAULT pg_backend_pid()"


@needs("libnss-wrapper")
@pytest.mark.parametrize("name_has", ["both", "the primary"])
def test_clients_work_on_the_new_primary_within_two_seconds(
    fragile, pgpaces, tmp_path, name_has, record_property
):
    hosts, script = tmp_path / "hosts", tmp_path / "write.sql"
    hosts.write_text(f"{FIRST} pg.test\n" + (f"{SECOND} pg.test\n" if name_has == "both" else ""))
    script.write_text("INSERT INTO written DEFAULT VALUES;\n")
    fragile.execute(f"CREATE TABLE IF NOT EXISTS written ({TABLE})")
    fragile.execute("GRANT ALL ON written TO PUBLIC")
    with standby_of(fragile, SECOND) as standby:
        standby.wait_until("SELECT to_regclass('written') IS NOT NULL")
        fragile.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        fragile.execute("SELECT pg_reload_conf()")
        target = fragile.tcp(host="pg.test", target_session_attrs="read-write")
        process = pgpaces.start(
            *("run", "-f", script, "--target", target, "-c", CLIENTS, "--rate", RATE),
            *("-T", "10min", "--warmup", "0", "--arrivals", "even", "--no-guard", "--json"),
            env={"LD_PRELOAD": nss_wrapper(), "NSS_WRAPPER_HOSTS": str(hosts)},
        )
        try:
            fragile.wait_until("SELECT count(DISTINCT pid) = 4 FROM written")
            fragile.program("pg_ctl", "-w", "-m", "immediate", "stop")
            standby.program("pg_ctl", "-w", "promote")
            if name_has != "both":
                new = tmp_path / "new"
                new.write_text(f"{SECOND} pg.test\n")
                new.rename(hosts)
            promoted = time.time()
            since = f"FROM written WHERE at > to_timestamp({promoted}) GROUP BY pid"
            standby.wait_until(f"SELECT (SELECT count(*) FROM (SELECT pid {since}) p) = {CLIENTS}")
            firsts = standby.execute(f"SELECT extract(epoch FROM min(at)) {since}")
            delays = [float(first) - promoted for (first,) in firsts]
            record_property("delays_s", delays)
            assert max(delays) <= LIMIT_S, delays
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            found = json.loads(out)["value"]
            counts = found["counts"]
            ((written,),) = standby.execute("SELECT count(*) FROM written")
            # What was due without a primary is counted with its wait, and no commit is lost.
            assert adds_up(found), (counts, err)
            assert counts["due"] == pytest.approx(RATE * found["seconds"], abs=RATE * 0.1)
            assert written >= counts["on_time"] + counts["late"]
        finally:
            process.kill()
            start_again(fragile)
            fragile.execute("ALTER SYSTEM RESET synchronous_standby_names")
            fragile.execute("SELECT pg_reload_conf()")
            fragile.execute("DROP TABLE written")
