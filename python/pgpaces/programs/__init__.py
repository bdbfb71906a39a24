"""Programs of a workload: their environment, and how they are run so that none outlives pgpaces.

environment.py  words, variables, folders and connection of a program
files.py    the files that a workload reads: the user's own, or fetched once
inputs.py   a hash of the inputs of programs that make data, so that outdated data is not reused
runner.py   runs programs in sequence, under
watchdog.py a process of its own, which ends them when pgpaces ends

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
