"""A workload from an existing database: its statements by pg_stat_statements, with their weights.

It changes nothing in the database, and executes none of the statements.
"""

from pgpaces.capture.catalog import Captured
from pgpaces.capture.make import CaptureOptions, capture

__all__ = ["CaptureOptions", "Captured", "capture"]
