"""A workload from an existing database: its statements by pg_stat_statements, with their weights.

    reader statements, columns and functions of the server, by read-only transactions
    parser a statement's tree, and the places of its parameters; uses: what each is compared with
    guess  values for a parameter, from statistics of its column; logs: real ones, from a server log
    script a statement and its values as a script; selection: statements to take, their weights
    folder the workload's files

It changes nothing in the database, and executes none of the statements.
"""

from pgpaces.capture.catalog import Captured
from pgpaces.capture.make import CaptureOptions, capture

__all__ = ["CaptureOptions", "Captured", "capture"]
