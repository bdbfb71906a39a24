"""The command of an experiment once more, with other options: what to do next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgpaces.spec.options import BY_NAME, OF_COMMANDS

if TYPE_CHECKING:
    from pgpaces.analysis.compare import Verdict

# Trials are not made longer than this; more of them decide as well.
_TRIAL_MAX_S = 300
_TRIALS_MIN = 2
# More pairs than these are no next step.
_PAIRS_MAX = 200


def again(command: str, **options: str) -> str:
    """The command with options in place of its own, by their names; empty if there is no command.

    A switch such as `quick` is left out, and its text is empty.
    """
    if not command:
        return ""
    spelled = {name: BY_NAME.get(name) or OF_COMMANDS[name] for name in options}
    left = {word: each for each in spelled.values() for word in (each.word, each.short) if word}
    words: list[str] = []
    rest = iter(shlex.split(command))
    for word in rest:
        option = left.get(word.partition("=")[0]) or left.get(word[:2])
        if option is None:
            words.append(word)
        elif not option.flag and word in left:
            next(rest, None)
    for name, text in options.items():
        words += (spelled[name].short or spelled[name].word, text) if text else ()
    return shlex.join(words)


def longer(command: str, needed_s: float) -> str:
    """The command of a sweep with trials that together are long enough for a verdict."""
    trials = max(_TRIALS_MIN, math.ceil(needed_s / _TRIAL_MAX_S))
    each = math.ceil(max(needed_s / trials, min(needed_s, _TRIAL_MAX_S)) / 10) * 10
    return again(command, quick="", duration=f"{each}s", trials=str(trials))


def length(seconds: float) -> tuple[int, str]:
    """Seconds as a round duration, rounded up: 90 s, 20 min."""
    if (tens := math.ceil(seconds / 10) * 10) <= 120:
        return tens, "s"
    minutes, hours = math.ceil(seconds / 60), math.ceil(seconds / 3600)
    return (minutes, "min") if minutes <= 120 else (hours, "h")


def decisive(command: str, verdict: Verdict) -> Iterator[str]:
    """The command of a comparison without a verdict, with as many pairs as would decide."""
    from pgpaces.analysis.compare import PAIRS_MIN

    if not command or verdict.why != "wide" or not 0 < (verdict.needed or 0) <= _PAIRS_MAX:
        return
    count = max(PAIRS_MIN, verdict.needed or 0, verdict.pairs + 1)
    if verdict.basis == "pairs":
        yield again(command, pairs=str(count))
    elif verdict.basis in ("blocks", "trials") and command.startswith("pgpaces sweep "):
        yield again(command, quick="", trials=str(count))
