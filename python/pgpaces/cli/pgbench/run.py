"""What `pgpaces pgbench` does: the initialization of its tables, or a run with its report."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg import conninfo
from psycopg.pq import ConnStatus, PGconn, abc

from pgpaces.cli.output import put
from pgpaces.cli.pgbench import report
from pgpaces.cli.pgbench.options import VERSION, PgbenchError
from pgpaces.cli.pgbench.report import Facts
from pgpaces.core import sessions
from pgpaces.core.errors import LogError, PgpacesError, ServerError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import decoded, encoded
from pgpaces.core.units import duration_text, exact
from pgpaces.database import pgbench_tables
from pgpaces.load import engine
from pgpaces.server.folder import quoted
from pgpaces.show import escape
from pgpaces.spec import workload
from pgpaces.spec.load import THREADS_MAX, LogPlan
from pgpaces.spec.target import TargetPlan
from pgpaces.spec.workload import commands_in
from pgpaces.trial import trial as pipeline
from pgpaces.trial.listener import Listener
from pgpaces.trial.request import Request, check, request_of, with_fields
from pgpaces.trial.trial import Outcome

if TYPE_CHECKING:
    from pgpaces.cli.pgbench import Voice
    from pgpaces.cli.pgbench.options import Options
    from pgpaces.core.record import Interval
    from pgpaces.spec.result import Trial

_SECOND_NS = 1_000_000_000
_FOREVER_NS = 365 * 86_400 * _SECOND_NS  # as long as a trial may last
_ABORTED_EXIT, _INTERRUPTED_EXIT = 2, 130


class Setup(Redacted, frozen=True):
    """The connection for setup, and its parameters, the password included."""

    REDACTED: ClassVar = ("parameters",)
    session: Session
    parameters: dict[str, str]


def _parameters(options: Options, program: str, purpose: str) -> dict[str, str]:
    """The connection parameters. A connection string as database name overrides the options.

    Empty options are none, as in libpq, so that its variables apply; an empty value in a connection
    string is one.
    """
    every = {"host": options.host, "port": options.port, "user": options.user}
    every |= {"fallback_application_name": program}
    parameters = {name: value for name, value in every.items() if value}
    name = options.dbname or ""
    if name.startswith(("postgresql://", "postgres://")) or "=" in name:
        # All its values are texts, whatever their declared type.
        return parameters | {k: str(v) for k, v in conninfo.conninfo_to_dict(name).items()}
    if re.match(r"[a-zA-Z0-9+]+://", name):
        # A misspelled URI would be sent as a database name, and quoted with its password.
        raise _unconnected(ServerError("uri-of-other-program").message, purpose)
    return parameters | ({"dbname": name} if name else {})


def connect(options: Options, voice: Voice, purpose: str) -> Setup:
    """Connects, and asks for a password if the server requires one. Raises PgbenchError."""
    try:
        parameters = _parameters(options, voice.program, purpose)
        with contextlib.suppress(PgpacesError):  # libpq has words for it
            # The host that the load will find: libpq may know another directory.
            if host := engine.resolve("", **parameters).keywords.get("host"):
                parameters["host"] = host
        conn = _attempt(parameters)
        if conn.status != ConnStatus.OK and conn.needs_password and "password" not in parameters:
            parameters["password"] = _ask_password(voice)
            conn = _attempt(parameters)
    except psycopg.ProgrammingError as error:  # not a connection string
        raise _unconnected(_without_pieces(str(error), options.dbname or ""), purpose) from None
    if conn.status != ConnStatus.OK:
        raise _unconnected(decoded(conn.error_message), purpose)
    session = sessions.with_text(psycopg.Connection(conn))
    session.autocommit = True
    return Setup(session, parameters)


def _without_pieces(words: str, name: str) -> str:
    """libpq's message for a bad connection string, without quotations of one with a password.

    libpq quotes the whole string or a piece of it; either may hold the password.
    """
    if not re.search("@|pass|secret|_key", name):
        return words
    words = re.sub(r'(: |after |option |in )".*"', r'\1"***"', words, count=1, flags=re.DOTALL)
    return re.sub(r'^unexpected character ".', 'unexpected character "*', words)


def _attempt(parameters: dict[str, str]) -> abc.PGconn:
    # By libpq and not psycopg, which tries the hosts itself, so that errors are libpq's.
    words = (f"{name}={quoted(value)}" for name, value in parameters.items())
    return PGconn.connect(encoded(" ".join(words)))


def _unconnected(why: str, purpose: str) -> PgbenchError:
    last = ("error", f"could not create connection for {purpose}")
    return PgbenchError(why.rstrip("\n"), last)


def _ask_password(voice: Voice) -> str:
    import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        voice.say("Password: ")
        password = sys.stdin.readline().rstrip("\r\n")
        voice.say("\n")
        return password
    try:
        return getpass.getpass("Password: ")
    except EOFError:
        return ""


def initialize(options: Options, voice: Voice) -> int:
    # The fields of tables are options of the same names; the others have their defaults.
    values = {name: getattr(options, name) for name in pgbench_tables.Tables.__struct_fields__}
    tables = pgbench_tables.Tables(**{k: v for k, v in values.items() if v is not None})
    setup = connect(options, voice, "initialization")

    def progress(text: str, width: int) -> None:
        if sys.stderr.isatty():
            voice.rewrite(f"{text:<{width}}")
        elif text:
            voice.say(f"{text}\n")

    with contextlib.closing(setup.session) as session:
        pgbench_tables.initialize(session, tables, options.steps, say=voice.say, progress=progress)
    return 0


def run(options: Options, voice: Voice) -> int:
    """Runs the scripts and prints the report; the exit code.

    Raises ScriptError where one cannot be sent by the protocol.
    """
    for script in options.scripts:
        commands_in(script.description, script.text, parameters=options.protocol != "simple")
    setup = connect(options, voice, "setup")
    with contextlib.closing(setup.session) as session:
        server = session.info.parameter_status("server_version") or "unknown"
        put(escape.stream(report.banner(VERSION, version("pgpaces"), server)) + "\n")
        sys.stdout.flush()
        if options.debug:
            info = session.info
            kind, amount = "nxacts", options.transactions
            if options.duration_s is not None:
                kind, amount = "duration", options.duration_s
            text = (
                f"pghost: {info.host} pgport: {info.port} nclients: {options.clients}"
                f" {kind}: {amount} dbName: {info.dbname}"
            )
            voice.tell(("info", text))
        facts = _facts(options, session, voice)
        scripts = [
            workload.WorkloadScript(
                script.description, script.weight, script.text, source=script.description
            )
            for script in options.scripts
        ]
        name = options.scripts[0].name if len(scripts) == 1 else "multiple scripts"
        made = workload.of_scripts(name, scripts, "run by pgpaces pgbench")
        target = TargetPlan(dsn="", overrides=tuple(setup.parameters.items()))
        request = _request(options, facts, made, target=target)
        check(request)  # before anything is changed
        if not options.no_vacuum:
            pgbench_tables.vacuum_before_run(
                session, options.vacuum_all, voice.say, complain=voice.failed
            )
    watch = _Watch(options, voice)
    outcome = pipeline.run(request, watch)
    return _end(options, facts, outcome, watch=watch)


def _facts(options: Options, session: Session, voice: Voice) -> Facts:
    """The facts to report: of the tables only where a builtin script runs. Raises ServerError."""
    commands = [
        [command.text for command in commands_in(script.description, script.text)]
        for script in options.scripts
        if options.per_command
    ]
    if not options.builtin_used:
        return Facts(1 if options.scale is None else options.scale, commands=commands)
    scale = pgbench_tables.scale_of(session)
    if options.scale is not None:
        text = f"scale option ignored, using count from pgbench_branches table ({scale})"
        voice.tell(("warning", text))
    return Facts(scale, *pgbench_tables.partitions_of(session), commands)


def _request(
    options: Options, facts: Facts, scripts: workload.Workload, *, target: TargetPlan
) -> Request:
    limit_ns, duration_s = options.limit_us * 1000, options.duration_s
    length: dict[str, Any] = {"transactions": options.transactions}
    if duration_s is not None:
        length = {"duration": duration_text(min(duration_s * _SECOND_NS, _FOREVER_NS))}
    variables = {"scale": str(facts.scale), **options.defines}
    asked = {
        **({"think_time": "0s"} if options.rate is None else {"rate": f"{exact(options.rate)}/s"}),
        **({"latency_limit": duration_text(min(limit_ns, _FOREVER_NS))} if limit_ns else {}),
        **length,
        "clients": options.clients,
        "threads": min(options.jobs, THREADS_MAX),
        "policy": "skip" if options.rate is not None and options.limit_us else "run",
        "protocol": options.protocol,
        "describe": True,
        "warmup": "0s",
        "grace": duration_text(_FOREVER_NS),  # running transactions may finish
        "seed": options.seed,
        "scale": max(1, facts.scale),
        **{f"define.{name}": text for name, text in variables.items()},
        "max_tries": options.max_tries,
        "guard": False,
        "keep_going": True,
        "connect_each": options.connect_each,
        "verbose_errors": options.verbose_errors,
    }
    log = None
    if options.log:
        log = LogPlan(
            prefix=options.log_prefix or "pgbench_log",
            sampling=options.sampling_rate or 1.0,
            aggregate_s=options.aggregate_s or None,
            detailed=options.failures_detailed,
        )
    return with_fields(
        request_of(asked, scripts, target=target, keep=options.store, observe=False),
        backlog="drop",
        continue_on_error=options.continue_on_error,
        exit_on_abort=options.exit_on_abort,
        recover=False,
        time_commands=options.per_command,
        notices=True,
        debug=options.debug,
        log=log,
    )


class _Watch(Listener):
    def __init__(self, options: Options, voice: Voice) -> None:
        self.totals = report.Totals()
        self.connect_ns = 0
        self.voice = voice
        self._options = options

    def started(self, trial: Trial, connect_ns: int) -> None:
        self.connect_ns = connect_ns

    def interval(self, interval: Interval) -> None:
        self.totals.add(interval)
        self.voice.tell(*interval.lines)
        passed_s = interval.second + 1
        whole = interval.ended_ns >= passed_s * _SECOND_NS
        if self._options.progress_s and whole and passed_s % self._options.progress_s == 0:
            epoch_s = time.time() if self._options.progress_timestamp else None
            self.voice.say(self.totals.progress(self._options, epoch_s) + "\n")

    def stopping(self, count: int) -> None:
        if count == 1:
            self.voice.tell(("info", message("pgbench-stopping")))


def _end(options: Options, facts: Facts, outcome: Outcome, *, watch: _Watch) -> int:
    totals, voice = watch.totals, watch.voice
    log_ended = isinstance(outcome.error, LogError)
    aborted = totals.aborted_thread is not None or (outcome.error is not None and not log_ended)
    if outcome.error is not None and (log_ended or totals.aborted_thread is None):
        voice.failed(outcome.error)  # a client that gave up has printed its own error
    if aborted and options.exit_on_abort:
        thread = totals.aborted_thread or 0
        voice.tell(("error", f"Run was aborted due to an error in thread {thread}"))
    else:
        put(escape.stream(report.report(options, facts, totals, connect_ns=watch.connect_ns)))
        sys.stdout.flush()
        if aborted:
            voice.tell(("error", "Run was aborted; the above results are incomplete."))
    if outcome.store_error is not None:
        voice.tell(("warning", message("pgbench-not-stored", why=outcome.store_error.message)))
    # The error above already says that an aborted run is incomplete.
    if not aborted and (lost := report.unfinished(totals)):
        voice.tell(("warning", lost))
    if options.debug and options.store and outcome.store_error is None:
        from pgpaces.store.address import default_shown

        voice.tell(("info", f"stored as run {outcome.trial.id} in {default_shown()}"))
    if aborted or log_ended:
        return _ABORTED_EXIT
    return _INTERRUPTED_EXIT if outcome.trial.state == "interrupted" else 0
