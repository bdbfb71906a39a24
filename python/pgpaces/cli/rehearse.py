"""`pgpaces rehearse`: what a migration does to users, on a copy of the database."""

from __future__ import annotations

import contextlib
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.cli import options, output, specs
from pgpaces.cli.compare import write_ci_files
from pgpaces.cli.output import announce
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.core.messages import message
from pgpaces.spec.options import OPTIONS

if TYPE_CHECKING:
    from pgpaces.trial.rehearse import RehearsalRequest

_EXITS = {"safe": 0, "unknown": output.UNKNOWN_EXIT}
# A rehearsal has its own length, and always copies.
_LEFT_OUT = ("duration", "transactions", "warmup", "shape", "own", "fresh", "variant", "scripts")
_OF_LOAD = tuple(o.name for o in OPTIONS if o.run and o.name not in _LEFT_OUT)
_TERMS = (
    *("event", "run", "open_transaction", "autovacuum", "single_transaction", "lock_timeout"),
    *("retries", "timeout", "production_rows", "safer"),
)


@options.command(
    options.of("file", "like", "anyway", "from_database", "missed"),
    options.of(*_TERMS, "safer_file"),
    options.of_trial(*_OF_LOAD),
    options.of(*options.ANSWER, "junit", "summary", "progress", "on_store_error", "trust"),
)
@options.argument("names", nargs=-1, metavar="[FILE...] [WORKLOAD]")
def rehearse(names: tuple[str, ...], **params: Any) -> int:
    """Run the migration in FILE on a copy of a database while users are active.

    WORKLOAD, or the scripts that you give with --file, simulate the users. pgpaces reports which
    statement of the migration blocks them, for how long, and whether requests fail. It also
    rehearses the migration while an open transaction locks the tables. If the migration is not
    safe, pgpaces looks for a safer form. With --event, pgpaces rehearses a restart, crash, or
    failover of a server instead of a migration.

    The verdict is SAFE, BLOCKS, FAILS, SLOWS, or UNKNOWN. If --from-database is a DSN, pgpaces only
    reads that database and copies it to a managed server. If --from-database is a NAME, the
    database is on --target, and pgpaces makes the copy there.
    """
    from pgpaces.answers.rehearse import section
    from pgpaces.answers.sweep.lookup import answer_of
    from pgpaces.cli.progress import TrialProgress
    from pgpaces.trial import rehearse as pipeline

    output.check(params)
    output.check({**params, "junit": params["safer_file"]})
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
        write_ci_files(shown, params)
        if params["output"]:
            output.write_report(answer_of(store, found.id).document(), params["output"])
    if params["safer_file"] and found.proved and found.safer:
        note = message("rehearsal-safer-note", name=found.name)
        text = f"{textwrap.indent(textwrap.fill(note, 76), '-- ')}\n{found.safer}"
        with output.output():
            Path(params["safer_file"]).write_text(text, "utf-8")
        announce("rehearsal-safer-file", path=params["safer_file"])
    if found.interrupted:
        return output.INTERRUPTED_EXIT
    return _EXITS.get(found.verdict, output.FAIL_EXIT)


def _asked(names: tuple[str, ...], params: dict[str, Any]) -> RehearsalRequest:
    """The request of a command line. Raises PlanError, TrustError."""
    from pgpaces.trial.rehearse import Terms, ask
    from pgpaces.trial.request import workload_of

    files = [name for name in names if is_there(Path(name), Path.is_file)]
    others = [name for name in names if name not in files]
    if len(others) > 1 or (others and others[0].endswith(".sql")):
        raise PlanError("migration-not-found", path=others[0])
    if not files and not params["event"] and not params["program"]:
        raise PlanError("migration-missing")
    typed, stored = specs.spec({**params, "workload": others[0] if others else None})
    workload = workload_of(typed, specs.consent(params), typed=True)
    specs.check_unchanged(stored, workload, params)
    return ask(
        typed,
        workload,
        Terms(**{name: params[name] for name in Terms.__struct_fields__}),
        files=files,
        consent=specs.consent(params),
        command=specs.typed_command({**params, "target": [params["target"]]}),
        store=params["store_path"],
        on_store_error=params["on_store_error"],
    )
