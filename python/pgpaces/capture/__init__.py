"""A workload from a database that exists: its statements by pg_stat_statements, with their weights.

    read   what the server says: statements, columns, functions; in transactions that only read
    parsed a statement's tree, and where its parameters stand; uses: what each is compared with
    guess  values for a parameter, from statistics of its column; logs: real ones, from a server log
    script a statement and its values as a script; choice: which are taken, and with what weight
    folder the workload's files

Nothing of the database is changed, and no statement of it is executed.
"""

from pgpaces.capture.catalog import Captured, Left, Taken
from pgpaces.capture.make import CaptureOptions, capture

__all__ = ["CaptureOptions", "Captured", "Left", "Taken", "capture"]
