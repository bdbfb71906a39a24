"""`--live` with a load: its process is apart, reads the store, and costs the load nothing."""

import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command, adds_up
from tests.processes import alive, children, command_of
from tests.waiting import until

pytestmark = pytest.mark.postgres
LOAD = ("run", "select-only", "--scale", "1", "--warmup", "0", "--rate", "50", "-L", "1s", "--live")


def companions(pid: int) -> list[int]:
    """The processes with live pages that a process started."""
    return [each for each in children(pid) if b"pgpaces.web.companion" in command_of(each)]


@contextmanager
def loading(pgpaces: Command, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A load with its live page: the process, and the printed link."""
    process = pgpaces.start(*LOAD, *words, "-P", "1")
    assert process.stderr is not None
    lines: list[str] = []
    running = threading.Event()

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line)
            if re.match(r"\d+ s: ", line):
                running.set()
        running.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert running.wait(60), lines
    (link,) = [line.split()[1] for line in lines if line.startswith("live: ")]
    try:
        yield process, link
    finally:
        process.kill()
        process.wait()
        reader.join()


def opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor())


def stored(pgpaces: Command) -> Any:
    return pgpaces("show", "last", "--json").json()


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_the_page_ends_with_its_load(pgpaces, number):
    with loading(pgpaces, "-T", "60s") as (process, _):
        (page,) = companions(process.pid)
        process.send_signal(number)
        process.wait(60)
        until(lambda: not alive(page))


def test_the_page_has_a_small_share_of_the_cpus(pgpaces):
    with loading(pgpaces, "-T", "60s") as (process, _):
        (page,) = companions(process.pid)
        pids = (page, process.pid)
        low, usual = (os.getpriority(os.PRIO_PROCESS, pid) for pid in pids)
        assert low > usual
        # Where Linux groups sessions, it shares the CPUs out by session first. The files are empty
        # in a cgroup of the CPU controller, which replaces these groups.
        files = [Path(f"/proc/{pid}/autogroup") for pid in pids]
        if all(file.exists() and file.read_text() for file in files):
            low, usual = (file.read_text().split() for file in files)
            assert low[0] != usual[0]
            assert int(low[-1]) > int(usual[-1])
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_the_link_stops_the_load_as_ctrl_c_does(pgpaces):
    with loading(pgpaces, "-T", "60s") as (process, link):
        browser = opener()
        browser.open(link)
        base = "/".join(link.split("/")[:3])
        assert browser.open(f"{base}/stop", data=b"").status == 202
        assert process.wait(60) == 130
        answer = stored(pgpaces)
        assert answer["state"] == "interrupted"
        assert adds_up(answer)


def test_no_token_is_in_arguments_or_the_environment(pgpaces):
    with loading(pgpaces, "-T", "5s") as (process, link):
        token = link.partition("token=")[2]
        (page,) = companions(process.pid)
        for pid in (process.pid, page):
            for name in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
