"""Where PostgreSQL comes from: programs found on this machine, and managed servers.

Knows nothing of workloads, loads, results or the command line.
"""
