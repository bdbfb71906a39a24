"""Runs of real pgbench as trials: its logs and its printed report in, a Trial out. Pure.

pgbench.py       a Trial of the files of one run
transactions.py  the log of every transaction (-l)
aggregated.py    the log of sums (--aggregate-interval)
printed.py       what pgbench prints at the end

What a format does not say is not made up: quantiles of sums, classes that were not logged.
"""

from pgpaces.imported.pgbench import PgbenchFile, Told, trial

__all__ = ["PgbenchFile", "Told", "trial"]
