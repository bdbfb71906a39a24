"""What /proc and /sys say becomes samples of seconds; what cannot be read stays a gap."""

import gc
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.digest import digest
from pgpaces.cli.machine import observe
from pgpaces.core.findings import Notes, finding
from pgpaces.core.series import Sample
from pgpaces.monitor import host, linux, machine, remote
from pgpaces.monitor.host import HostMonitor, HostSample
from pgpaces.monitor.linux import Item, Mount, Probe, changes
from tests.unit.sensors import collect
from tests.unit.trials import series

# A Raspberry Pi 4 with a quota on the server's group, as its files look.
PI = {
    "/proc/stat": "cpu  100 10 50 800 20 5 5 10 7 0\ncpu0 1 2 3\nprocs_running 3\n",
    "/proc/loadavg": "0.10 0.20 0.30 3/250 4711\n",
    "/proc/meminfo": "MemTotal: 4000 kB\nMemAvailable: 3000 kB\nSwapTotal: 100 kB\n"
    "SwapFree: 90 kB\nHugePages_Total: 0\n",
    "/proc/diskstats": " 179 0 mmcblk0 10 1 400 9 20 2 800 9 0 150 9 0 0 0 0\n"
    " 179 1 mmcblk0p1 10 1 400 9 20 2 800 9 0 150 9\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n",
    "/sys/block/mmcblk0/stat": "10 1 400",
    "/sys/fs/ext4/mmcblk0p1/errors_count": "0\n",
    "/proc/net/dev": "Inter-| Receive | Transmit\n face |bytes packets|bytes\n"
    "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
    "  eth0: 2048 1 0 0 0 0 0 0 1024 1 0 0 0 0 0 0\n"
    "  veth1: 2048 1 0 0 0 0 0 0 1024 1 0 0 0 0 0 0\n",
    "/sys/class/net/eth0/device/uevent": "DRIVER=bcmgenet\n",
    "/proc/pressure/cpu": "some avg10=1.00 avg60=0.00 avg300=0.00 total=500000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "/proc/pressure/io": "some avg10=0.00 total=1000\nfull avg10=0.00 total=500\n",
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
    "/proc/42/cgroup": "0::/system.slice/postgresql.service\n",
    "/sys/fs/cgroup/system.slice/postgresql.service/cpu.stat": "usage_usec 7\nnr_periods 100\n"
    "nr_throttled 40\nthrottled_usec 9\n",
    "/sys/fs/cgroup/system.slice/cpu.stat": "usage_usec 7\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1400000\n",
    "/sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "/sys/class/thermal/thermal_zone0/temp": "61500\n",
    "/sys/class/thermal/thermal_zone0/trip_point_0_type": "active\n",
    "/sys/class/thermal/thermal_zone0/trip_point_0_temp": "50000\n",
    "/sys/class/thermal/thermal_zone0/trip_point_1_type": "passive\n",
    "/sys/class/thermal/thermal_zone0/trip_point_1_temp": "80000\n",
    "/sys/class/thermal/thermal_zone0/trip_point_2_type": "critical\n",
    "/sys/class/thermal/thermal_zone0/trip_point_2_temp": "110000\n",
    "/sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
}
GROUP = "/sys/fs/cgroup/system.slice/postgresql.service"


def mount(point, root, kind="cgroup2"):
    return Mount("0:1", root, point, kind, kind, "rw,cpu,cpuacct")


@contextmanager
def machine_of(files):
    """The folder of a machine with these files; psutil reads its /proc."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil, "PROCFS_PATH", f"{folder}/proc")
        for name, text in files.items():
            path = Path(f"{folder}{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, errors="surrogateescape")
        yield Path(folder)


def values(items):
    found = {}
    for item in items:
        found[item.name] = found.get(item.name, 0) + item.value
    return found


def test_everything_of_a_board_is_read():
    with machine_of(PI) as root:
        found = values(Probe([42], root).items())
    ticks = {"user": 110, "system": 60, "iowait": 20, "steal": 10, "idle": 800}
    assert found == pytest.approx({
        **{f"cpu_{name}": n / os.sysconf("SC_CLK_TCK") for name, n in ticks.items()},
        "run_queue": 3,
        "memory_available": 3000 * 1024, "swap_used": 10 * 1024,
        "disk_mmcblk0_busy": 15, "disk_mmcblk0_read": 200, "disk_mmcblk0_written": 400,
        "disk_mmcblk0_reads": 10, "disk_mmcblk0_writes": 20,
        "network_in": 2, "network_out": 1,
        "pressure_cpu_some": 50, "pressure_io_some": 0.1, "pressure_io_full": 0.05,
        "cgroup_periods": 100, "cgroup_throttled": 40,
        "cpu_frequency": 1450,
        "temperature_cpu_thermal_0": 61.5, "headroom_cpu_thermal_0": 18.5,
        "pi_throttled": 5, "pi_throttled_since_boot": 5,
        "io_errors": 0,
    })  # fmt: skip


@given(st.dictionaries(st.sampled_from(sorted(PI)), st.text(max_size=60)), st.data())
def test_files_that_say_anything_or_are_missing_are_gaps_and_no_error(said, data):
    missing = data.draw(st.sets(st.sampled_from(sorted(PI))))
    with machine_of({k: v for k, v in (PI | dict(said)).items() if k not in missing}) as root:
        found = Probe([42], root).items()
    assert all(isinstance(item.value, int | float) for item in found)


@pytest.mark.parametrize(
    ("text", "mounts", "folders"),
    [
        ("0::/a/b\n", [mount("/c", "/")], ["/c/a/b", "/c/a", "/c"]),
        ("1:cpu:/x\n0::/z\n", [mount("/u", "/")], ["/u/z", "/u"]),
        ("3:cpu,cpuacct:/x\n", [mount("/u", "/"), mount("/v", "/", "cgroup")], ["/v/x", "/v"]),
        ("0::/docker/abc/in\n", [mount("/c", "/docker/abc")], ["/c/in", "/c"]),
        ("0::/../other\n", [mount("/c", "/")], ["/c/other", "/c"]),
    ],
)
def test_a_quota_may_be_on_a_group_or_on_any_above_it(text, mounts, folders):
    assert linux.cgroups(text, mounts) == folders


def ticks(*values):
    names = ("user", "system", "iowait", "steal", "idle")
    return [Item(f"cpu_{n}", v, "%", "ticks") for n, v in zip(names, values, strict=True)]


def quota(periods, throttled, part="/a"):
    return [
        Item("cgroup_periods", periods, "periods", "event", part),
        Item("cgroup_throttled", throttled, "periods", "event", part),
    ]


def error(value, part="sda"):
    return Item("io_errors", value, "", "event", part)


def rate(value):
    return Item("disk_a_read", value, "KB/s", "rate")


@pytest.mark.parametrize(
    ("before", "after", "seconds", "expected"),
    [
        (ticks(0, 0, 0, 0, 0), ticks(30, 10, 5, 5, 150), 1.0,
         {"cpu_busy": 20, "cpu_user": 15, "cpu_system": 5, "cpu_iowait": 2.5, "cpu_steal": 2.5}),
        ([rate(10), error(1), *quota(10, 2)],
         [rate(40), error(2), *quota(20, 7), Item("run_queue", 4, "threads")], 2.0,
         {"disk_a_read": 15, "io_errors": 1, "cgroup_throttled": 5, "cgroup_throttled_share": 50,
          "run_queue": 4}),
        # Of several groups with a quota the most exhausted one counts.
        ([*quota(0, 0, "/pod/a"), *quota(0, 0, "/pod")],
         [*quota(10, 9, "/pod/a"), *quota(10, 1, "/pod")], 1.0,
         {"cgroup_throttled": 10, "cgroup_throttled_share": 90}),
        # What is missing or began anew gives no number.
        ([], [error(5)], 1.0, {}),
        ([error(5)], [], 1.0, {}),
        ([error(5)], [error(3)], 1.0, {}),
        ([error(5)], [error(5, "sdb")], 1.0, {}),
    ],
)  # fmt: skip
def test_counters_become_rates_events_and_shares(before, after, seconds, expected):
    assert {i.name: i.value for i in changes(before, after, seconds)} == expected


def test_a_sensor_that_never_began_is_closed_at_once():
    sensor = HostMonitor(host.ThisMachine())
    assert sensor.close()
    assert sensor.drain() == []


def test_this_machine_is_read_and_no_file_stays_open():
    probe = Probe(["self"])
    gc.collect()  # what other tests left open is closed now, or during this
    opened = len([*Path("/proc/self/fd").iterdir()])
    found = {i.name for i in changes(probe.items(), probe.items(), 1.0)}
    assert {"memory_available", "run_queue"} <= found
    assert len([*Path("/proc/self/fd").iterdir()]) <= opened


def test_observe_prints_a_line_of_json_for_each_second(monkeypatch):
    done = CliRunner().invoke(observe, ["--count", "1"], standalone_mode=False)
    [printed] = done.output.splitlines()
    at_s, items, _ = host.parsed(printed.encode())
    assert abs(json.loads(printed)["time"] - time.time()) < 60
    assert at_s <= time.monotonic()
    assert {"cpu_busy", "memory_available"} <= {item.name for item in items}
    monkeypatch.setattr(Probe, "items", lambda _: [])
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/nowhere")
    assert machine.facts().memory_bytes is None
    done = CliRunner().invoke(observe, ["--count", "1"], standalone_mode=False)
    _, items, notes = host.parsed(done.output.encode())
    assert (items, [n.name for n in notes]) == ((), ["proc-unreadable"])


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "40000 100000\n"}, 0.4),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense\n"}, None),
    ],
)
def test_the_amount_of_a_quota_is_read_in_both_versions(files, cpus):
    with machine_of({**PI, **{f"{GROUP}/{name}": text for name, text in files.items()}}) as root:
        assert values(Probe([42], root).items()).get("cgroup_quota") == cpus


def test_a_server_that_is_moved_to_a_group_with_a_quota_is_followed():
    with machine_of({**PI, "/sys/fs/cgroup/slow/cpu.stat": ""}) as root:
        probe = Probe([42], root)
        first = probe.items()
        (root / "proc/42/cgroup").write_text("0::/slow\n")
        for periods, throttled in ((10, 10), (20, 19)):
            text = f"nr_periods {periods}\nnr_throttled {throttled}\n"
            (root / "sys/fs/cgroup/slow/cpu.stat").write_text(text)
            before, first = first, probe.items()
    found = {i.name: i.value for i in changes(before, first, 1.0)}
    assert found["cgroup_throttled_share"] == 90


def look(at_s, value=1.0):
    return HostSample(at_s, (Item("run_queue", value, "threads"),))


def test_a_look_belongs_to_the_second_that_it_ends():
    found = samples([look(99.01), look(100.0), look(101.02), look(103.98)], 100.0)
    assert [s.second for s in found] == [-2, -1, 0, 3]
    assert {(s.source, s.name, s.unit) for s in found} == {("host", "run_queue", "threads")}


class Known:
    """A source of samples that are known before."""

    def __init__(self, looks):
        self.notes = Notes()
        self._looks = looks

    def observe(self, ended, start_s):
        return iter(self._looks)

    def clock_lag_s(self):
        return 0.0

    def close(self) -> None: ...


def samples(looks, start_s):
    sensor = HostMonitor(Known(looks))
    sensor.begin(start_s)
    assert sensor.close()
    return sensor.drain()


@given(st.floats(-0.5, 0.5), st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=50))
def test_full_seconds_of_another_machine_make_no_gap_and_nothing_double(away, jitter):
    looks = [look(1000 + n + away + j) for n, j in enumerate([0.0, *jitter])]
    seconds = [s.second for s in samples(looks, 1000.0)]
    assert seconds == list(range(seconds[0], seconds[0] + len(looks)))


@given(
    st.floats(0, 1e9),
    st.dictionaries(st.text(max_size=20), st.floats(-1e12, 1e12), max_size=5),
)
def test_a_line_says_what_was_seen(at_s, seen):
    items = tuple(Item(name, value, "°C") for name, value in seen.items())
    note = finding("io-errors", error="x" * 200)
    found_s, found, notes = host.parsed(host.line(HostSample(at_s, items), [note]))
    assert found_s == pytest.approx(at_s, abs=1e-3)
    assert {i.name: i.value for i in found} == pytest.approx(seen, rel=1e-4, abs=1e-9)
    assert notes == [note]


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "Permission denied (publickey).", '{"monotonic": 1}',
        '{"monotonic": 1, "time": 2, "values": {"a": 3}}',
        '{"monotonic": NaN, "time": 2, "values": {}}',
        '{"monotonic": 1, "time": 2, "values": {"a": ["x", "%"]}}',
        "\udcff", "[" * 60_000,
        '{"monotonic": 1, "time": 2, "values": {"a": [' + "9" * 400 + ', "%"]}}',
    ],
)  # fmt: skip
def test_what_is_no_line_is_not_believed(text):
    source = remote.RemoteCommand("unused")
    assert source._sample(text.encode(errors="surrogateescape")) is None
    kept = '{"monotonic": 1, "time": 2, "values": {"a": [null, "%"], "b": [1, "%"]}}'
    assert [i.name for i in host.parsed(kept.encode())[1]] == ["b"]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_one_who_listens(text):
    remote.RemoteCommand("unused")._sample(text)


def test_a_command_on_another_machine_is_heard_with_our_clock_and_ends_with_us():
    sensor = run_command(printing(3600.0, 5e6), lambda s: len(s._samples) == 3)
    assert sensor.source._child.wait(120) != 0
    found = sensor.drain()
    assert [s.value for s in found] == [0, 1, 2]
    # The last of its lines was the quickest to arrive.
    assert [s.second - found[-1].second for s in found] == [-2, -1, 0]
    assert abs(found[-1].second) <= 3


def run_command(command, until):
    sensor = HostMonitor(remote.RemoteCommand(command))
    sensor.begin(time.monotonic())
    deadline = time.monotonic() + 120
    while not until(sensor):
        assert time.monotonic() < deadline, sensor.notes()
        time.sleep(0.01)
    assert sensor.close()
    return sensor


def printing(ahead_s, boot_s):
    """A command that prints three lines of a machine whose clocks are others, and goes on."""
    now = time.time() + ahead_s
    lines = [
        json.dumps({"monotonic": boot_s + n, "time": now + n, "values": {"run_queue": [n, "t"]}})
        for n in range(3)
    ]
    return "printf '%s\\n' " + " ".join(f"'{line}'" for line in lines) + "; exec sleep 600"


def test_a_command_that_says_something_else_or_ends_is_a_note():
    sensor = run_command(
        "echo 'ssh: no route to host' >&2; exit 255",
        lambda s: finding("observe-command-ended", code=255) in s.notes(),
    )
    assert finding("observe-command-printed", text="ssh: no route to host") in sensor.notes()
    assert sensor.drain() == []


def test_of_a_machine_the_telling_tracks_come_first_and_the_others_stay_in_the_store():
    names = ("run_queue", "network_in", "disk_sda_reads", "disk_sda_busy", "cpu_user", "cpu_busy")
    seen = [Sample(0, "host", name, 1 / 3, "%") for name in names]
    seen += [Sample(0, "workers", "planned", 2.0), Sample(0, "checkpoints", "checkpoints", 1.0)]
    given = series([[1.0]], samples=collect(seen))
    tracks = digest(given).tracks
    assert [track.name for track in tracks] == [
        "cpu_busy",
        "disk_sda_busy",
        "checkpoints",
        "planned",
    ]
    assert tracks[0].values == (0.33333,)
