"""The help text of `pgpaces pgbench`: every option in a line or two, in pgbench's groups."""

from __future__ import annotations

_TEXT = """\
{command}, a benchmarking tool for PostgreSQL: pgbench's workloads or yours, and pgbench's options.

Usage:
  {command} [OPTION]... [DBNAME]

Initialization options:
  -i, --initialize         make and fill the tables, then end
  -I, --init-steps=[dtgGvpf]+ (default "dtgvp")
                           the steps to take, in this order:
                           d: drop the four tables, if they are there
                           t: create them
                           g: fill them from here
                           G: fill them on the server
                           v: vacuum them
                           p: add their primary keys
                           f: add foreign keys between them
  -F, --fillfactor=NUM     how full to make pages, in percent (default: 100)
  -n, --no-vacuum          leave the vacuum step out
  -q, --quiet              report progress only every 5 seconds
  -s, --scale=NUM          size of the data: 100000 accounts each (default: 1)
  --foreign-keys           take the step f as well
  --index-tablespace=TABLESPACE
                           where indexes go
  --partition-method=(range|hash)
                           how accounts are partitioned (default: range)
  --partitions=NUM         split accounts into NUM partitions (default: 0)
  --tablespace=TABLESPACE  where tables go
  --unlogged-tables        make tables without write-ahead log

Options to select what to run:
  -b, --builtin=NAME[@W]   run the builtin script NAME, with weight W (default: 1)
                           ("-b list" names them)
  -f, --file=FILENAME[@W]  run the script in FILENAME ("-": standard input), with weight W
  -N, --skip-some-updates  short for "-b simple-update"
  -S, --select-only        short for "-b select-only"

Benchmarking options:
  -c, --client=NUM         clients, each with a connection (default: 1)
  -C, --connect            connect anew for each transaction
  -D, --define=VARNAME=VALUE
                           set a variable for the scripts
  -j, --jobs=NUM           threads that serve the clients (default: 1)
  -l, --log                log every transaction into files
  -L, --latency-limit=NUM  what lasts longer than NUM ms is late; with -R, what would start
                           later than that is skipped
  -M, --protocol=simple|extended|prepared
                           how SQL is sent (default: simple)
  -n, --no-vacuum          leave the tables as they are before the run
  -P, --progress=NUM       report progress every NUM seconds
  -r, --report-per-command report times, failures and retries of every command
  -R, --rate=NUM           transactions due per second, in all
  -s, --scale=NUM          scale to report, where no builtin script runs
  -t, --transactions=NUM   transactions of each client (default: 10)
  -T, --time=NUM           how long to run, in seconds
  -v, --vacuum-all         vacuum the accounts too before the run
  --aggregate-interval=NUM log a line of sums every NUM seconds
  --continue-on-error      a failed statement ends its transaction, not its client
  --exit-on-abort          end the run when a client is aborted
  --failures-detailed      report failures by kind
  --log-prefix=PREFIX      what names of log files begin with (default: "pgbench_log")
  --max-tries=NUM          maximum tries of a transaction, 0 for no maximum (default: 1)
  --progress-timestamp     progress by the clock (Unix epoch)
  --random-seed=SEED       seed for random numbers: "time", "rand" or a number
  --sampling-rate=NUM      share of transactions to log (0.01: 1%)
  --show-script=NAME       print a builtin script, then end
  --verbose-errors         report every failure and retry
  --no-store               store no result (pgpaces only)

Common options:
  --debug                  report every step of every client, and where the result is
  -d, --dbname=DBNAME      database, or a connection string
  -h, --host=HOSTNAME      server's host, or its socket directory
  -p, --port=PORT          server's port
  -U, --username=USERNAME  role to log in as
  -V, --version            print the version, then end
  -?, --help               print this, then end

Report bugs to the maintainers of pgpaces, not to PostgreSQL.
"""


def usage(command: str) -> str:
    """The help text; command: the name of the program."""
    return _TEXT.replace("{command}", command)
