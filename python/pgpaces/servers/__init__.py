"""Where PostgreSQL comes from: programs found on this machine, and servers of our own.

binaries.py    which PostgreSQL programs are here
registries.py  how programs come from pip and Maven
packages.py    versions that are fetched: the cache of them; which builds are compared
libraries.py   what of the system a program lacks
profiles.py    settings with a name, shipped ones in profiles/; how two sets of settings differ
tls.py         certificates, and which builds can use them
embedded.py    servers of our own: start, running, stop. What the rest of pgpaces calls
topology.py    a primary and its standbys, made by pg_basebackup
pooler.py      pgbouncer or pgpool before them
record.py      what is known of one server: its address as DSN and PG* variables, its file
folder.py      where a server lives on disk, and who may use that folder now
access.py      who may connect: the private socket, TCP with a password
os_user.py     who runs a server when we are root
postmaster.py  one initdb, one start: the conversation with supervise.py
supervise.py   a program of its own: PostgreSQL's parent, which ends it when we end
failure.py     what PostgreSQL wrote when it refused, as one sentence and a hint

Knows nothing of workloads, loads, results or the command line.
"""
