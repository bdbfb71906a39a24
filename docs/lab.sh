#!/bin/sh
# The lab of docs/commands.py, in a mount namespace of its own: what pages take for granted.
# `sh docs/lab.sh FOLDER PROGRAM...` makes it in FOLDER and runs PROGRAM there; it is gone at the end.
set -eu
lab=$1 home=$(cd "$(dirname "$0")/.." && pwd)
shift
programs=/usr/lib/postgresql/15/bin
export HOME="$lab/home" PGSERVICEFILE="$lab/pg_service.conf"
unset PGHOST PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS
# Labs may stand side by side: each has addresses of its own.
net=
for number in 0 1 2 3 4 5 6 7 8 9; do
    if ! ss -Hltn 'sport = 5432 or sport = 5433' | grep -qE " (127\.0\.$number\.[12]|0\.0\.0\.0|\*):543[23] "; then
        net=127.0.$number
        break
    fi
done
if [ -z "$net" ]; then
    echo "ports 5432 and 5433 must be free" >&2
    exit 1
fi

# Root's servers run as another user, who has to enter the lab.
chmod 755 "$lab"
mkdir -p "$HOME/bin" "$lab/bin" "$lab/servers" "$lab/socket" "$lab/mnt/ssd" "$lab/mnt/plain" "$lab/mnt/encrypted"
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
    chown postgres "$lab/servers" "$lab/socket"
    as() { setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; }
fi

# Hosts are this machine, folders of disks are folders, ssh runs the command here.
cat >&2 <<'END'
In this lab pi4, lab, db1 and production are one PostgreSQL 15 of this machine, db2 is its standby, pi4:5433 a copy;
ssh runs its command here; folders in /mnt are on the disk of temporary files, none of them encrypted;
RUN and ids that pages show are runs made here.
END
printf '127.0.0.1 localhost\n%s.1 pi4 lab db1 production\n%s.2 db2\n' "$net" "$net" >"$lab/hosts"
mount --bind "$lab/hosts" /etc/hosts
mount --bind "$lab/mnt" /mnt
mount --bind "$lab/socket" /var/run/postgresql
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$lab/bin/ssh"
chmod 755 "$lab/bin/ssh"
cat >"$PGSERVICEFILE" <<'END'
[pi4]
host=pi4
user=app
dbname=bench
[production]
host=production
user=app
dbname=shop
END

# A certificate of pi4 and what signed it.
cd "$lab/servers"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=pi4 -keyout pi4.key -out pi4.csr 2>/dev/null
printf 'subjectAltName=DNS:pi4\n' >pi4.ext
openssl x509 -req -in pi4.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile pi4.ext -out pi4.crt 2>/dev/null
if [ "$(id -u)" = 0 ]; then chown postgres pi4.key; fi
chmod 600 pi4.key

# server NAME ADDRESS PORT SOCKETS: starts it; the first has what the others are copied from.
server() {
    cat >>"$1/postgresql.auto.conf" <<END
listen_addresses = '$2'
port = $3
unix_socket_directories = '$4'
END
    as "$programs/pg_ctl" -D "$1" -s -w -l "$1.log" start
}
as "$programs/initdb" -D primary -U postgres --auth=trust -E UTF8 --locale=C --no-sync >/dev/null
sed -i 's,127.0.0.1/32,127.0.0.0/8,' primary/pg_hba.conf
cat >>primary/postgresql.conf <<END
max_connections = 200
shared_preload_libraries = 'pg_stat_statements'
logging_collector = on
log_destination = csvlog
log_filename = 'postgresql.log'
ssl = on
ssl_cert_file = '$lab/servers/pi4.crt'
ssl_key_file = '$lab/servers/pi4.key'
END
server primary $net.1 5432 /var/run/postgresql
psql -Xq -v ON_ERROR_STOP=1 -v me="$(id -un)" -U postgres -f "$home/docs/lab.sql" postgres
as "$programs/pg_basebackup" -h $net.1 -U postgres -D other -c fast
server other $net.1 5433 ''
as "$programs/pg_basebackup" -h $net.1 -U postgres -D standby -c fast -R
server standby $net.2 5432 ''

# What the shop is used for, counted and logged.
pgbench -i -q -s 1 bench 2>/dev/null
cat >"$lab/use.sql" <<'END'
\set id random(1, 1000)
SELECT name, price FROM item WHERE id = :id;
UPDATE item SET price = price + 1 WHERE id = :id;
END
PGOPTIONS='-c log_min_duration_statement=0' pgbench -n -M extended -c 2 -t 500 -f "$lab/use.sql" shop >/dev/null
mkdir "$lab/files"
as cat primary/log/postgresql.csv >"$lab/files/postgresql.csv"
cp ca.crt "$lab/files/"

# Files of the reader.
cd "$lab/files"
mkdir data
seq 1 1000 | sed 's/.*/&,item &/' >data/items.csv
echo 'CREATE TABLE item (id integer, name text); \copy item FROM data/items.csv CSV' | sed 's/; /;\n/' >load.sql
pg_dump -Fc -f shop.dump shop
echo 'SELECT 1;' | tee mine.sql r1.sql >r2.sql
echo 'SELECT count(*) FROM item;' >other.sql
echo 'SELECT avg(value) FROM reading WHERE sensor = 1;' >read.sql
echo 'INSERT INTO reading (sensor, value) VALUES (1, 2);' >write.sql

cd "$lab"
"$@" || code=$?
for name in standby other primary; do
    as "$programs/pg_ctl" -D "servers/$name" -s -m immediate stop || true
done
exit ${code:-0}
