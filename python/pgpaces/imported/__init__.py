"""Runs of real pgbench as trials: its logs and its printed report in, a Trial out. Pure.

A trial has no numbers that a format lacks: quantiles of sums, outcomes that were not logged.
"""

from pgpaces.imported.pgbench import ImportOptions, PgbenchFile, trial

__all__ = ["ImportOptions", "PgbenchFile", "trial"]
