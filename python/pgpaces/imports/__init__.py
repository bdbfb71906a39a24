"""Runs of real pgbench as trials: its logs of all transactions in, a Trial out."""
