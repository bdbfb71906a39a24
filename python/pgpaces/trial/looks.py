"""Ends a run as soon as its verdict is certain: at the looks of analysis/stopping.py."""

from __future__ import annotations

import math

from pgpaces.analysis import goal
from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.stopping import LOOKS_S, certain_in, decide
from pgpaces.analysis.summary import so_far
from pgpaces.core.units import SECOND_NS
from pgpaces.load.composite import Together
from pgpaces.spec.result import Trial
from pgpaces.trial.listener import Listener

# How often, in seconds, a listener learns when the verdict is certain.
_EVERY_S = 5
# The end of a load that ends by count is later than this.
_PLANNED_MAX_NS = 2**61


class Looks:
    """The looks at a trial, if it ends by them.

    A look at second t waits until everything that was due before t has ended or is late.
    """

    def __init__(self, trial: Trial, listener: Listener) -> None:
        self._trial, self._listener = trial, listener
        self._wait_s = math.ceil(max(goal.limits_ns(trial), default=0) / 1e9)
        self._left = [*LOOKS_S] if trial.plan.auto else []
        self._ended_s: int | None = None

    def after(self, second: int, accumulator: Accumulator, load: Together) -> None:
        """Stops the load if the verdict is certain, now that it has reported this second."""
        at = second + 1 - self._wait_s
        if not self._left or at < _EVERY_S or (at != self._left[0] and at % _EVERY_S):
            return
        if at * SECOND_NS > load.end_ns:  # it was stopped for another reason
            return
        found, allowed = so_far(self._trial, accumulator, at), goal.allowed(self._trial)
        decision = None if found is None else decide(found, at, allowed)
        if at == self._left[0]:
            del self._left[0]
            if not self._left or (decision is not None and decision.verdict != "unknown"):
                self._left, self._ended_s = [], at
                load.stop()
                return
        if found is not None and decision is not None and decision.missed is not None:
            self._listener.looked(decision.missed, certain_in(found, at, allowed))

    def measured_ns(self, planned_ns: int, ended_ns: int) -> int:
        """The length of the measured part: until the look that decided, else as planned, or to the
        end of the load if that was earlier.
        """
        if self._ended_s is not None:
            return self._ended_s * SECOND_NS
        return max(0, min(planned_ns if planned_ns < _PLANNED_MAX_NS else ended_ns, ended_ns))
