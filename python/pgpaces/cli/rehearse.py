"""`pgpaces rehearse`: what a migration does to users, on a copy of the database."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pgpaces.cli import options, output, specs
from pgpaces.cli.output import announce
from pgpaces.core.errors import PlanError, TrustError
from pgpaces.core.home import is_there
from pgpaces.core.messages import message
from pgpaces.spec.options import OPTIONS
from pgpaces.spec.trust import Action, Question

_EXITS = {"safe": 0, "unknown": output.UNKNOWN_EXIT}
# A rehearsal has its own length, and always copies.
_LEFT_OUT = ("duration", "transactions", "warmup", "shape", "own", "fresh", "variant", "scripts")
_OF_LOAD = tuple(o.name for o in OPTIONS if o.run and o.name not in _LEFT_OUT)
_WARMUP = "2s"
# The parts before and after the migration, at most.
_AROUND_S = 120


@options.command(
    options.of("file", "like", "anyway", "from_database", "missed"),
    options.of(
        "event",
        "run",
        "open_transaction",
        "single_transaction",
        "lock_timeout",
        "retries",
        "timeout",
    ),
    options.of("safer", "safer_file"),
    options.of_trial(*_OF_LOAD),
    options.of(*options.ANSWER, "junit", "summary", "progress", "on_store_error", "trust"),
)
@options.argument("names", nargs=-1, metavar="FILE... [WORKLOAD]")
def rehearse(names: tuple[str, ...], **params: Any) -> int:
    """Run the migration in FILE on a copy of a database while users are active.

    WORKLOAD, or scripts with --file, are the users. pgpaces reports which statement of the
    migration blocks them, for how long, and whether requests fail. It also rehearses the migration
    behind an open transaction. If the migration is not safe, pgpaces looks for a safer form.
    Instead of a migration, --event rehearses what the loss of a server does.

    The verdict is SAFE, BLOCKS, FAILS, SLOWS, or UNKNOWN. A DSN in --from-database is only read:
    pgpaces dumps it to a managed server. A NAME is copied on --target.
    """
    from pgpaces.answers.rehearse import section
    from pgpaces.answers.sweep.lookup import answer_of
    from pgpaces.cli.progress import TrialProgress
    from pgpaces.trial import rehearse as pipeline

    output.check(params)
    asked = _asked(names, params)
    progress = TrialProgress(params["progress"])
    try:
        found = pipeline.rehearse(asked, progress)
    finally:
        progress.done()
    with contextlib.closing(options.open_store(params["store_path"])) as store:
        trials = [digest.trial for digest in store.digests(store.ended(found.id))]
        shown = section(found, trials)
        output.show(shown, as_json=params["as_json"], verbose=params["verbose"])
        if params["output"]:
            output.write_report(answer_of(store, found.id).document(), params["output"])
    if params["safer_file"] and found.proved and found.safer:
        Path(params["safer_file"]).write_text(found.safer, "utf-8")
        announce("rehearsal-safer-file", path=params["safer_file"])
    return _EXITS.get(found.verdict, output.FAIL_EXIT)


def _asked(names: tuple[str, ...], params: dict[str, Any]) -> Any:
    """The request of a command line. Raises PlanError."""
    from pgpaces.core.units import duration_ns
    from pgpaces.spec.migration import Statement, read
    from pgpaces.trial.rehearse import RehearsalRequest
    from pgpaces.trial.request import request_of, workload_of

    event, program = params["event"] or "", params["program"] or ""
    files = [name for name in names if is_there(Path(name), Path.is_file)]
    others = [name for name in names if name not in files]
    if len(others) > 1 or (others and others[0].endswith(".sql")):
        raise PlanError("migration-not-found", path=others[0])
    given = [word for word, value in (("--event", event), ("--run", program)) if value]
    if len(given) + bool(files) > 1:
        raise PlanError("cannot-combine", options=[*given, *files[:1]])
    if not files and not given:
        raise PlanError("migration-missing")
    text, statements = read(files) if files else (event or program, ())
    if program and not specs.consent(params)(_question(program)):
        raise TrustError("command-unconfirmed", command=program)
    if params["single_transaction"]:
        begin, commit = Statement("BEGIN", "begin"), Statement("COMMIT", "end")
        statements = (begin, *statements, commit)
    if params["lock_timeout"]:
        ms = max(1, duration_ns(params["lock_timeout"], "--lock-timeout") // 1_000_000)
        statements = (Statement(f"SET lock_timeout = '{ms}ms'"), *statements)
    timeout_s = duration_ns(params["timeout"], "--timeout") / 1e9
    open_s = duration_ns(params["open_transaction"], "--open-transaction", zero=True) / 1e9
    typed, stored = specs.spec({**params, "workload": others[0] if others else None})
    workload = workload_of(typed, specs.consent(params), typed=True)
    specs.check_unchanged(stored, workload, params)
    length = f"{timeout_s + open_s + _AROUND_S:g}s"
    spec = {**typed, "duration": length, "warmup": _WARMUP}
    if not any(name.partition(".")[0] == "latency_limit" for name in (*typed, *workload.load)):
        spec["latency_limit"] = "100ms"
    load = request_of(
        _with_server(spec, params),
        workload,
        consent=specs.consent(params),
        store=params["store_path"],
        on_store_error=params["on_store_error"],
    )
    return RehearsalRequest(
        load=load,
        name=Path(files[0]).name if files else text,
        text=text,
        statements=statements,
        event=event,
        program=program,
        # An event has no lock to wait for.
        open_s=0.0 if event else open_s,
        tries=1 + params["retries"],
        timeout_s=timeout_s,
        find_safer=params["safer"] and bool(files),
        command=specs.typed_command({**params, "target": [params["target"]]}),
    )


def _question(program: str) -> Question:
    action = Action(message("runs-command"), "--run", program)
    return Question(Path.cwd(), (action,))


def _with_server(spec: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """The spec with a managed server of the same major version as a source that is dumped."""
    from pgpaces.database.access import Access, connect, is_dsn, keywords_of

    source = params["from_database"]
    if not source or not is_dsn(source) or spec.get("target") or spec.get("server"):
        return spec
    with connect(Access(keywords_of(source), Path("psql"))) as session:
        return {**spec, "server": str(session.info.server_version // 10_000)}
