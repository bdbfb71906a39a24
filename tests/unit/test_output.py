"""What is printed where nothing is taken: an error as any other, and no traceback."""

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.analysis.summary import summarize
from pgpaces.cli.answers import show, trend
from pgpaces.cli.output import output, save, with_store
from pgpaces.cli.run import run
from pgpaces.core.errors import RunError, StoreError
from pgpaces.core.record import Tally
from pgpaces.trial.trial import Outcome
from tests.errors import raises, sentence
from tests.needs import needs
from tests.unit.stored import Kept, keep, opened
from tests.unit.trials import trial

SLOW = pytest.mark.slow


def environment(home: Path, buffered: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    kept.pop("PYTHONUNBUFFERED", None)
    return kept | {"PGPACES_HOME": str(home)} | ({} if buffered else {"PYTHONUNBUFFERED": "1"})


@pytest.mark.parametrize(
    ("late", "words", "code"),
    [(0, [], 0), (60, [], 30), (60, ["--allow-fail"], 0), (60, ["--fail-if", "late > 5%"], 30),
     (60, ["--allow-fail", "--fail-if", "late > 5%"], 30)],
)  # fmt: skip
def test_a_run_that_fails_ends_with_30_unless_that_is_allowed(
    late, words, code, tmp_path, monkeypatch
):
    done = trial([Tally(0, 0, due=600, on_time=600 - late * 5, late=late * 5)])
    outcome = Outcome(done, summarize(done), stored=True)
    monkeypatch.setattr("pgpaces.trial.trial.run", lambda *_: outcome)
    (tmp_path / "x.sql").write_text("SELECT 1;")
    given = ["-f", f"{tmp_path}/x.sql", "-L", "500ms", "-T", "9s", *words]
    assert CliRunner().invoke(run, given, standalone_mode=False).return_value == code


@needs("/dev/full")
@pytest.mark.parametrize(
    ("command", "to", "buffered"),
    [
        ("workload list", ">/dev/full", True),
        ("workload list", ">/dev/full", False),
        ("--version", ">/dev/full", True),
        ("observe -n 1", ">/dev/full", True),
        ("workload list", ">&-", True),
        ("--version", "<&- >&-", True),
    ],
)
def test_an_output_that_is_full_or_closed_is_an_error_with_an_exit_code(
    tmp_path, command, to, buffered
):
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m pgpaces {command} {to}"],
        env=environment(tmp_path, buffered), stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    error, hint = done.stderr.splitlines()
    why = "No space left on device" if "full" in to else "Bad file descriptor"
    assert error == "pgpaces: error: " + sentence("cannot-write-output", why=why)
    assert hint.startswith("pgpaces: hint: ")
    assert done.returncode == 5


@pytest.mark.parametrize("form", ["md", pytest.param("html", marks=SLOW)])
def test_a_file_on_stdout_is_utf8_whatever_the_terminal_can_show(tmp_path, form):
    keep(opened(tmp_path), Kept("01A"))
    done = subprocess.run(
        [sys.executable, "-m", "pgpaces", "report", "--format", form, "--store", "results.db"],
        env=environment(tmp_path, True) | {"PYTHONIOENCODING": "latin-1"}, cwd=tmp_path,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(95% CI 39.7–40.3)" in done.stdout.decode()


@pytest.mark.parametrize(
    ("command", "next_"),
    [
        ("pgpaces why 1", "pgpaces why 1 --store 'a b.db'"),
        ("page: pgpaces report -o r.html", "page: pgpaces report -o r.html --store 'a b.db'"),
        ("pgpaces sweep w --store c.db", "pgpaces sweep w --store c.db"),
        (
            "pgpaces run w && pgpaces why last",
            "pgpaces run w --store 'a b.db' && pgpaces why last --store 'a b.db'",
        ),
        ("run longer", "run longer"),
        ("pgpaces why 'a\nb'", "pgpaces why 'a\nb' --store 'a b.db'"),
    ],
)
def test_the_next_command_has_the_store_of_this_one(command, next_):
    with trend.make_context("trend", ["good", "--store", "a b.db"]):
        assert with_store(command) == next_
    with trend.make_context("trend", ["good"]):
        assert with_store(command) == command
    with trend.make_context("trend", ["good", "--store", "a\nb.db"]):
        assert with_store("pgpaces why 1") == "pgpaces why 1 --store $'a\\nb.db'"


def test_an_answer_ends_with_commands_that_find_its_run(tmp_path):
    keep(opened(tmp_path), Kept("01A"))
    store = str(tmp_path / "results.db")
    shown = CliRunner(env={"COLUMNS": "60"}).invoke(show, ["01A", "--store", store]).stdout
    typed = [line for line in shown.replace("\\\n", "").splitlines() if " pgpaces " in line]
    assert typed
    for line in typed:
        assert shlex.split(line)[-2:] == ["--store", store]


def test_a_result_that_is_not_stored_is_printed_whole_with_the_reason(tmp_path, monkeypatch):
    full = StoreError("unwritable-folder", path="/x.db", why="full")
    done = trial([Tally(0, 0, due=3, on_time=3)])
    outcome = Outcome(done, summarize(done), store_error=full, stored=False)
    monkeypatch.setattr("pgpaces.trial.trial.run", lambda *_: outcome)
    (tmp_path / "x.sql").write_text("SELECT 1;")
    words = ["-f", f"{tmp_path}/x.sql", "-T", "9s", "-o", f"{tmp_path}/report.html"]
    result = CliRunner().invoke(run, words, standalone_mode=False)
    assert result.return_value == StoreError.exit_code, result.output
    assert "3 due" in result.stdout
    assert "details:" not in result.stdout
    assert "p99.9" in result.stdout
    error, hint = result.stderr.splitlines()[-2:]
    lost = sentence("result-and-report-lost", path=tmp_path / "report.html", why=full.message)
    assert error == f"pgpaces: error: {lost}"
    assert hint == f"pgpaces: hint: {full.hint}"
    assert not (tmp_path / "report.html").exists()


@needs("/dev/full")
def test_errors_that_nobody_hears_keep_their_exit_code(tmp_path):
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "pgpaces", "run"]
        done = subprocess.run(words, env=environment(tmp_path, True), stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    "closed", ["2>&-", "<&- >&- 2>&-", *(pytest.param(n, marks=SLOW) for n in ("<&-", ">&-"))]
)
def test_streams_that_are_closed_are_no_file_of_ours(tmp_path, closed):
    """A store that was opened as stderr would be written to by whoever warns."""
    store = tmp_path / "results.db"
    command = f"exec {sys.executable} -m pgpaces runs copy {store} --store {store} {closed}"
    from pgpaces.store.store import Store

    Store.open(store).close()
    done = subprocess.run(
        ["sh", "-c", command], env=environment(tmp_path, True), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")
    refused = f"exec {sys.executable} -m pgpaces run nothing {closed}"
    words = ["sh", "-c", refused]
    done = subprocess.run(words, env=environment(tmp_path, True), capture_output=True, check=False)
    assert done.returncode == 3, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "stream", "text"),
    [
        ("doctor", "stdout", b"? PASS  pgpaces works here"),
        ("pgbench -f \u2713.sql", "stderr", b"\xe2\x9c\x93.sql"),
    ],
)
def test_what_an_8_bit_locale_has_no_character_for_ends_no_answer(tmp_path, command, stream, text):
    done = subprocess.run(
        [sys.executable, "-m", "pgpaces", *command.split()],
        env=environment(tmp_path, True) | {"PYTHONIOENCODING": "iso8859-1"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert text in getattr(done, stream)
    assert b"UnicodeEncodeError" not in done.stderr


def test_a_report_into_a_pipe_does_not_take_its_place(tmp_path):
    """Nor that of a device: root may replace /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save(b"answer", pipe)
    assert os.read(reads, 99) == b"answer"
    os.close(reads)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_report_into_a_link_replaces_what_it_names(tmp_path):
    (tmp_path / "link").symlink_to("file")
    for content in (b"first", b"second"):
        save(content, tmp_path / "link")
        assert (tmp_path / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_an_error_with_a_way_out(number):
    with raises(RunError, "too-many-open-files", why=os.strerror(number)), output():
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_behind_the_answer_does_not_change_how_it_ended(tmp_path, number):
    code = f"""
import atexit, os, signal, sys
from pgpaces.cli.main import main
atexit.register(lambda: os.kill(os.getpid(), signal.{number}))
sys.argv = ["pgpaces", "workload", "list"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, True), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "reporting" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["pgpaces", "runs"]
from pgpaces.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["pgpaces.cli.main", "click", "pgpaces.cli.runs"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module):
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize("words", ["--version", "run --help", "observe -n 1"])
def test_a_reader_that_has_gone_is_no_error(words):
    command = [sys.executable, "-m", "pgpaces", *words.split()]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    said = started.stderr.read()
    assert (started.wait(timeout=60), said) == (0, b"")
