"""A script of any size is read with memory in proportion to it, and kept in part."""

import subprocess
import sys

import pytest

from pgpaces.spec import workload
from pgpaces.spec.workload import commands_in
from tests.folders import ROOT

SIZE = 40_000_000
READ = """
import sys, time
from pgpaces.spec import workload
from pgpaces.spec.workload import commands_in
from tests.memory import peak_bytes
start = time.process_time()
script = workload.read_script(sys.argv[1])
found = workload.of_scripts("big", [script])
assert len(commands_in("big", script.text)) >= 1
assert found.hash
cpu_s = time.process_time() - start
print(peak_bytes(), cpu_s)
"""
SCRIPTS = {
    "one line": b"INSERT INTO t VALUES %s(0, '');\n" % (b"(1234, 'a text'), " * (SIZE // 18)),
    "a quoted text": b"SELECT length('%s');\n" % (b"x" * SIZE),
    "lines of one statement": b"INSERT INTO t VALUES\n%s(0);\n" % (b"(1234567),\n" * (SIZE // 11)),
}


def read(path):
    """What a process that reads a script has in memory at most, in bytes, and its CPU time."""
    words = [sys.executable, "-c", READ, path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    peak, cpu_s = done.stdout.split()
    return int(peak), float(cpu_s)


@pytest.mark.parametrize("name", SCRIPTS)
def test_reading_a_script_of_ascii_takes_twice_its_size(name, tmp_path):
    small, big = tmp_path / "small.sql", tmp_path / "big.sql"
    small.write_bytes(b"SELECT 1;\n")
    big.write_bytes(SCRIPTS[name])
    grown = read(big)[0] - read(small)[0]
    assert grown < 2.3 * big.stat().st_size, f"{grown / big.stat().st_size:.2f} times its size"


def test_reading_takes_time_in_proportion_to_the_size(tmp_path):
    """Four times the text in at most eight times the CPU time, of the least of three."""

    def cpu_s(size):
        path = tmp_path / f"{size}.sql"
        path.write_bytes(SCRIPTS["one line"][:size] + b"(0, '');\n")
        return min(read(path)[1] for _ in range(3))

    assert cpu_s(SIZE) < 8 * cpu_s(SIZE // 4)


def test_a_script_is_parsed_once():
    text = "SELECT 'once';"
    assert commands_in("s", text) is commands_in("s", text)


def test_the_hash_is_of_the_whole_text():
    texts = ("x" * 3_000_000, "x" * 2_999_999 + "y")
    hashes = {workload.of_scripts("w", [workload.WorkloadScript("s", 1, t)]).hash for t in texts}
    assert len(hashes) == 2
