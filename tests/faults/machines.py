"""Machines of a test: network namespaces with a name, an address and a real sshd each."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.needs import check, lacking

BRIDGE, NET, NET6 = "pgpt0", "10.98.7", "fd98:7:"
GATE, SERVER, GATE6 = f"{NET}.1", f"{NET}.2", f"{NET6}:1"
SSHD = "/usr/sbin/sshd"
_MOUNTS = ("mount -t cgroup -o cpu", "mount -t cgroup2")
_GROUPS = f"{{ {' || '.join(f'{each} cgroup /sys/fs/cgroup' for each in _MOUNTS)}; }} 2>/dev/null"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machine:
    """One of them. sshd passes `variables` to what is started on it."""

    def __init__(self, number: int, folder: Path, variables: dict[str, str]) -> None:
        self.name, self.address = f"pgpt{number}", f"{NET}.{10 + number}"
        self.address6 = f"{NET6}:{10 + number}"
        home = folder / self.name
        (home / ".local" / "bin").mkdir(parents=True)
        (home / ".local/bin/pgpaces").symlink_to(Path(sys.executable).with_name("pgpaces"))
        _remove(self.name)
        _ip("netns", "add", self.name)
        _ip(
            "link", "add", f"v{self.name}", "type", "veth", "peer", "name", "e0", "netns", self.name
        )
        _ip("link", "set", f"v{self.name}", "master", BRIDGE, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "e0")
        _ip("-n", self.name, "addr", "add", f"{self.address6}/64", "dev", "e0", "nodad")
        for device in ("e0", "lo"):
            _ip("-n", self.name, "link", "set", device, "up")
        set_variables = [f"{k}={v}" for k, v in {"HOME": str(home), **variables}.items()]
        options = {
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "key.pub",
            "StrictModes": "no",
            "UsePAM": "no",
            "PidFile": "none",
            "SetEnv": " ".join(set_variables),
        }
        self._wire: subprocess.Popen[bytes] | None = None
        words = [SSHD, "-D", *(f"-o{name}={value}" for name, value in options.items())]
        command = ["ip", "netns", "exec", self.name, "unshare", "-u", "sh", "-c"]
        self._sshd = subprocess.Popen(
            # `ip netns` hides the groups of the machine that it runs on.
            [*command, f'{_GROUPS}; hostname {self.name}; exec "$@"', "sh", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """It does not reach the program that started its generator, but the server."""
        _ip("-n", self.name, "route", "add", "blackhole", f"{GATE}/32")
        try:
            yield
        finally:
            _ip("-n", self.name, "route", "del", "blackhole", f"{GATE}/32")

    def delay(self, ms: int) -> None:
        """What it sends arrives later: its wire goes through a process that holds frames back."""
        check("/dev/net/tun")
        _ip("link", "del", f"v{self.name}")
        words = [sys.executable, str(Path(__file__).with_name("far.py")), f"v{self.name}"]
        words += [f"/run/netns/{self.name}", str(ms)]
        self._wire = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == b"ready\n"
        _ip("link", "set", f"v{self.name}", "master", BRIDGE, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "e0")
        _ip("-n", self.name, "link", "set", "e0", "up")

    def pids(self) -> list[int]:
        """What runs on it."""
        words = ["ip", "netns", "pids", self.name]
        return [int(pid) for pid in subprocess.check_output(words).split()]

    def ports(self) -> set[int]:
        """Those on which something listens for other machines, sshd's own apart."""
        words = ["ip", "netns", "exec", self.name, "ss", "-Hltn"]
        lines = subprocess.check_output(words, text=True).splitlines()
        addresses = [line.split()[3] for line in lines]
        outside = (each for each in addresses if not each.startswith(("127.", "[::1]")))
        return {int(each.rpartition(":")[2]) for each in outside} - {22}

    def close(self) -> None:
        for process in filter(None, (self._sshd, self._wire)):
            process.kill()
            process.wait()
        _remove(self.name)


def _remove(name: str) -> None:
    """Ends what runs on a machine, and removes it, if it is there."""
    done = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True)
    for pid in done.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    for words in (["link", "del", f"v{name}"], ["netns", "del", name]):
        subprocess.run(["ip", *words], check=False, capture_output=True)


@contextlib.contextmanager
def machines(
    folder: Path, *variables: dict[str, str], ipv6: bool = False
) -> Iterator[list[Machine]]:
    """One for each set of variables; ssh reaches them by name with HOME at `folder`."""
    check("root", "ip", "sshd")
    for key in ("key", "host"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    started: list[Machine] = []
    try:
        try:
            _ip("link", "add", BRIDGE, "type", "bridge")
        except subprocess.CalledProcessError as error:
            lacking("network namespaces", error.stderr.decode().strip())
        for address in (GATE, SERVER):
            _ip("addr", "add", f"{address}/24", "dev", BRIDGE)
        _ip("addr", "add", f"{GATE6}/64", "dev", BRIDGE, "nodad")
        _ip("link", "set", BRIDGE, "up")
        for number, own in enumerate(variables, 1):
            started.append(Machine(number, folder, own))
        _ssh(folder, {machine.name: machine.address6 if ipv6 else machine.address
                      for machine in started})  # fmt: skip
        yield started
    finally:
        for machine in started:
            machine.close()
        subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


def _ssh(folder: Path, addresses: dict[str, str]) -> None:
    """Writes what ssh knows of them, by name, once each answers."""
    ssh = folder / ".ssh"
    ssh.mkdir()
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    with (ssh / "config").open("w") as config, (ssh / "known_hosts").open("w") as known:
        for name, address in addresses.items():
            config.write(f"Host {name}\n  HostName {address}\n")
            config.write(f"  IdentityFile {folder}/key\n  UserKnownHostsFile {ssh}/known_hosts\n")
            known.write(f"{address} {host_key}\n")
    deadline = time.monotonic() + 60
    for name in addresses:
        words = ["ssh", "-F", str(ssh / "config"), name, "true"]
        while subprocess.run(words, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline, f"sshd of {name} does not answer"
