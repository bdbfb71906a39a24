"""Prepares the target: our own databases, who owns one, their data, copies of them, and facts.

access.py    the way to a server: how it is administered, and how errors there are told
ownership.py whether a database is ours; one that is not is never changed
creation.py  managed databases come into being and go, and what a kill left of them
specification.py  which data is wanted, and what was made of it
data.py      a workload's data in a managed database, or in one that was handed over
steps.py     its steps: SQL files by psql, programs under a watchdog
source.py    source databases: copied, from here or from another server
copies.py    copies for trials that write, and a server at rest before them
settings.py  settings applied as mildly as it can be, verified
changes.py   settings that outlive a session: noted before they are changed, put back after
streaming.py standbys: until they have what the primary wrote
identity.py  facts of a server, and whether it is still the same one

We never drop, truncate or overwrite what is not ours. Knows nothing of load and results.
"""
