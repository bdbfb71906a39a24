"""Where results live: a SQLite file by default, or a PostgreSQL server.

The only package that knows the database.

store.py        the store: what can be kept and read
address.py      where one is
backend.py      the two databases: connecting, durability, errors, versions of the schema
sqlite.py       a file, opened as far as the file system lets us
schema.py       the tables
form.py         how values lie in them, and their version
rows.py         trials and their seconds as rows, and back
listing.py      trials as lists show them
experiments.py  experiments and the trials in them
disks.py        what disks were found to do
digests.py      digests as texts
names.py        what people call trials and experiments
copying.py      from one store to another, and away
"""
