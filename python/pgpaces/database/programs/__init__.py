"""Programs of a workload: their environment, and how they are run so that none outlives pgpaces.

Knows no load and no ownership.
"""

from pgpaces.database.programs.environment import ProgramEnvironment, program_environment
from pgpaces.database.programs.inputs import identity, matching
from pgpaces.database.programs.runner import CommandOrder, Execution, Runner

__all__ = [
    "CommandOrder",
    "Execution",
    "ProgramEnvironment",
    "Runner",
    "identity",
    "matching",
    "program_environment",
]
