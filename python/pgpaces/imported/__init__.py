"""Runs of real pgbench as trials: its logs and its printed report in, a Trial out. Pure.

pgbench.py       a Trial of the files of one run
transactions.py  the log of every transaction (-l)
aggregated.py    the log of sums (--aggregate-interval)
printed.py       what pgbench prints at the end

A trial has no numbers that a format lacks: quantiles of sums, outcomes that were not logged.
"""

from pgpaces.imported.pgbench import ImportOptions, PgbenchFile, trial

__all__ = ["ImportOptions", "PgbenchFile", "trial"]
