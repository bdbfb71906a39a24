"""Programs of a workload: what they are given, and how they are run so that none outlives us.

environment.py  words, variables, folders, the way to the server: made here for whoever runs one
files.py    the files that a workload reads: the user's own, or fetched once
inputs.py   what programs that make data read, so that data is not used again wrongly
runner.py   runs them one after the other, under
watchdog.py a process of its own, which ends them when we end

Knows no load and no ownership.
"""

from pgpaces.programs.environment import ProgramEnvironment, program_environment
from pgpaces.programs.inputs import identity, matching
from pgpaces.programs.runner import CommandOrder, Execution, Runner

__all__ = [
    "CommandOrder",
    "Execution",
    "ProgramEnvironment",
    "Runner",
    "identity",
    "matching",
    "program_environment",
]
