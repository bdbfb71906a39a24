"""Every command that a screen suggests runs as printed, here with shorter trials."""

import re
import shlex

import pytest
from tests.commands import Command, Ended, ctrl_c
from tests.integration.sweeps import count
from tests.waiting import until

from pgpaces.analysis import next_step
from pgpaces.core import causes

pytestmark = pytest.mark.postgres

SHORT = ["-T", "300ms", "--warmup", "0"]
SHORTER = {
    "run": [*SHORT, "-P", "0"],
    "sweep": [*SHORT, "--trials", "1"],
    "compare": [*SHORT, "--pairs", "8"],
}
RUN = "run select-only --scale 1 -T 300ms --warmup 0 -P 0 "
SWEEP = "sweep select-only --scale 1 -T 300ms --warmup 0 --trials 2 --clients 1,2 "
LOADS = {
    "open": "--rate 300 -c 2 -L 1s",
    "closed": "-c 2 --think-time 5ms",
    "paced": "--users 4 --pace 50/s -L 1s",
}
LATE = "--rate 100 -L 10ms -f slow.sql"
WIDE = "compare set.work_mem=4MB set.work_mem=8MB --run select-only --scale 1 -T 300ms --warmup 0"
# The screen of the last of some commands. What it suggests depends on the verdict, and that on how
# busy the machine is; tests/unit/test_outcome.py says what follows from which verdict.
SCREENS = [
    [RUN + LOADS["open"]],
    [RUN + "--rate 30 -c 1 -L 1s"],
    [RUN + "-c 1 " + LATE],
    [RUN + LOADS["closed"]],
    [SWEEP + "--rate 20 -L 1s"],
    [SWEEP + LATE],
    [RUN + "-c 1 " + LATE, "why"],
    [SWEEP + "--rate 100 -L 1s", "compare clients=1 clients=2"],
    [RUN + LOADS["open"], "trend"],
    pytest.param([f"{WIDE} -c 1 --pairs 8"], marks=pytest.mark.slow),
]
# Words with one blank between them: more follow, or a comment, if there is another command.
COMMANDS = re.compile(r"pgpaces (\w+(?: [^ #]+)*)")
# Screens of one kind suggest the same: which, and what they suggest, without names and numbers.
RAN: set[tuple[str, str]] = set()


def ran(pgpaces: Command, words: list[str]) -> Ended:
    return pgpaces.well(*words, cwd=pgpaces.store.parent, env={"COLUMNS": "200"})


def shortly(pgpaces: Command, words: list[str]) -> None:
    """Runs a suggested command with short trials; a search is interrupted in its first one."""
    if words[0] == "capacity":
        before = count(pgpaces.store, "interval")
        process = pgpaces.start(*words)
        until(lambda: count(pgpaces.store, "interval") > before, "a second of a trial")
        ctrl_c(process)
        return
    more = SHORTER.get(words[0], [])
    for option in set(words) & {*more[::2]}:
        at = words.index(option)
        del words[at : at + 2]
    ran(pgpaces, [*words, *more])


@pytest.mark.parametrize("commands", SCREENS)
def test_each_screen_suggests_commands_that_run(pgpaces, commands):
    (pgpaces.store.parent / "slow.sql").write_text("SELECT pg_sleep(0.02);\n")
    for command in commands:
        screen = ran(pgpaces, shlex.split(command)).out
    suggested = COMMANDS.findall(screen)
    assert suggested, screen
    for command in suggested:
        shape = (commands[-1].split()[0], re.sub(r"\b[0-9A-Z]{8}\b|\d+", "N", command))
        if shape not in RAN:
            RAN.add(shape)
            shortly(pgpaces, shlex.split(command))


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.slow if m != "open" else ()) for m in LOADS]
)
def test_each_cause_suggests_a_command_that_runs(pgpaces, model):
    ran(pgpaces, shlex.split(RUN + LOADS[model]))
    trial = pgpaces.trial()
    keys = (*causes.catalog().causes, *causes.catalog().forms)
    commands = {next_step.next_step_for(key, trial).command for key in keys}
    assert len(commands) > 10
    assert max(map(len, commands)) < 80
    for command in sorted(commands):
        shortly(pgpaces, shlex.split(command)[1:])
