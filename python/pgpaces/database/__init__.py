"""Prepares the target: managed databases, their ownership and data, copies of them, and facts.

access.py    administrative sessions of a server, and their errors
ownership.py whether pgpaces owns a database; it never changes others
creation.py  creates and drops managed databases, also those that a killed run left
specification.py  the specification of a dataset
data.py      a workload's data in a managed database, or in one named with --own
steps.py     its steps: SQL files by psql, programs under a watchdog
source.py    source databases: copied, on the same server or from another
copies.py    copies for trials that write; waits until the server is at rest
settings.py  settings applied with the smallest scope possible, and verified
changes.py   changes of settings that outlive a session: recorded before, put back after
streaming.py waits until standbys have replayed what the primary wrote
identity.py  facts of a server, and their changes

It never drops, truncates or overwrites what pgpaces does not own. Knows nothing of load and
results.
"""
