"""Command lines ask for what is frozen."""

import json

from . import asked


def test_three_hundred_command_lines_ask_for_what_they_asked_for_when_they_were_frozen(tmp_path):
    frozen = json.loads(asked.FROZEN.read_text())
    assert len(frozen) >= 301
    changed = {
        before["line"]: (before, now)
        for before, now in zip(frozen, asked.frozen(tmp_path), strict=True)
        if before != now
    }
    assert not changed


def test_the_frozen_lines_are_of_every_command_and_most_of_them_ask_for_something():
    frozen = json.loads(asked.FROZEN.read_text())
    commands = {each["line"].split()[1] for each in frozen if "same" in each}
    assert commands == {"run", "sweep", "capacity", "compare"}
    assert sum("same" in each for each in frozen) > 150
