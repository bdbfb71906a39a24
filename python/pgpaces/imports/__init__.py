"""Runs of real pgbench as trials: its logs of all transactions in, a Trial out. Pure."""

from pgpaces.imports.pgbench import ImportOptions, PgbenchFile, trial

__all__ = ["ImportOptions", "PgbenchFile", "trial"]
