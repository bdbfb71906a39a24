"""The store of results: a SQLite file by default, or a PostgreSQL server.

The only package that knows the database.

store.py        the store: all reads and writes
address.py      the address of a store
backend.py      the two databases: connecting, durability, errors, versions of the schema
sqlite.py       opening a file, also on read-only file systems
schema.py       the tables
upgrades.py     the version of the schema, and the upgrades to it
encoding.py     the encoding of values
rows.py         trials and their seconds as rows, and back
listing.py      trials and experiments for lists
experiments.py  experiments and the trials in them
disks.py        measurements of disks
digests.py      digests as texts
names.py        names of trials and experiments
copying.py      copies from one store to another, and deletion
"""
