"""`pgpaces run`: one trial, with progress on stderr and the answer on stdout."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgpaces.cli import consent, like, options
from pgpaces.cli.streams import announce, fail, put
from pgpaces.core.errors import RunError, StoreError
from pgpaces.show import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgpaces.analysis.digest import Bucket
    from pgpaces.analysis.summary import Summary
    from pgpaces.spec.result import Trial
    from pgpaces.spec.workload import Workload
    from pgpaces.trial.trial import Outcome

FAIL_EXIT = 30
KILLED_EXIT = 31
INTERRUPTED_EXIT = 130


@options.command()
@options.argument("workload", required=False)
@options.options(
    options.of("file", "like", "anyway"),
    options.of_trial("scripts", "variant"),
    options.of("from_database", "missed", "fail_if", "allow_fail", *options.ANSWER),
    options.of(*options.RUNNING),
    options.of_trial(),
)
def run(**params: Any) -> int:
    """Run WORKLOAD and report the share of transactions on time.

    WORKLOAD is the name of a shipped workload or a directory. With --file, your scripts run instead
    of the workload's scripts. Without WORKLOAD, your scripts run in the existing database of
    --target, or in an empty database on a managed server.
    """
    from pgpaces.trial.request import workload_of

    spec, stored = like.spec(params)
    workload = workload_of(spec, consent.of(params), typed=True)
    like.check(stored, workload, params)
    return measure(workload, spec, params)


def measure(workload: Workload, spec: Mapping[str, Any], params: Mapping[str, Any]) -> int:
    from pgpaces.analysis import condition
    from pgpaces.cli import output
    from pgpaces.cli.followed import followed, outputs_of
    from pgpaces.cli.progress import TrialProgress
    from pgpaces.core.texts import Warned
    from pgpaces.trial import trial as pipeline
    from pgpaces.trial.request import run_of

    output.check(params)
    outputs_of(params["live"], params["metrics"])
    conditions = [condition.parse_condition(text) for text in params["fail_if"]]
    request = run_of(
        spec,
        workload,
        consent=consent.of(params),
        host_file=params["host_file"],
        store=params["store_path"],
        on_store_error=params["on_store_error"],
    )
    if params["dry_run"]:
        from pgpaces.cli import dry_run

        dry_run.show(request, in_json=params["as_json"])
        return 0
    progress = TrialProgress(params["progress"])
    # The imports for the answer take a while: a signal during them does not lose the answer.
    warned = followed(params, lambda text: progress.say(Warned(text)))
    with warned, contextlib.ExitStack() as stack:
        try:
            outcome = pipeline.run(request, progress, stack)
        finally:
            progress.done()
        values, stored = (outcome.trial, outcome.summary, outcome.series), outcome.stored
        forms = {"as_json": params["as_json"], "verbose": params["verbose"]}
        text = answer_text(*values, **forms, in_store=stored)
    put(text)
    if params["output"] and stored:
        from pgpaces.cli import report

        report.write_of(params["store_path"], outcome.trial.id, params["output"])
    summary = outcome.summary
    for each in conditions:
        if condition.changed_by_cut(each, summary, outcome.whole):
            announce("fail-if-by-warmup", condition=each.text)
        if each(summary):
            announce("fail-if-true", condition=each.text, measured=each.measured(summary))
    from pgpaces.answers.run import headline

    fails = not params["allow_fail"] and headline(outcome.trial, summary).mark == "fail"
    failed = fails or any(each(summary) for each in conditions)
    return _exit_code(outcome, failed, params["output"])


def answer_text(
    trial: Trial,
    summary: Summary,
    series: Sequence[Bucket],
    *,
    as_json: bool,
    verbose: bool = True,
    in_store: bool = True,
) -> str:
    """The answer of a run: in one screen, or with every table if no store has it; or as JSON."""
    from pgpaces.answers import run as question
    from pgpaces.cli import output
    from pgpaces.show import data

    whole = verbose or not in_store
    shown = question.section(trial, summary, series, whole=whole, in_store=in_store)
    if as_json:
        return escape.json_text(data.document(output.with_own_store(shown)))
    return output.text((shown,), verbose=whole)


def _exit_code(outcome: Outcome, failed: bool, output: str | None) -> int:
    from pgpaces.analysis.validity import no_measurement
    from pgpaces.cli.output import with_store

    lost = outcome.store_error
    if lost is not None and not outcome.stored:
        why, hint = lost.message, lost.hint
        lost = StoreError("result-lost", why=why, hint=hint)
        if output:
            lost = StoreError("result-and-report-lost", path=output, why=why, hint=hint)
    errors = [each for each in (outcome.error, lost) if each is not None]
    for error in errors:
        fail(error)
    if errors:
        return errors[0].exit_code
    if outcome.killed:
        fail(RunError("trial-killed", why=str(outcome.killed)))
        return KILLED_EXIT
    if outcome.trial.state == "interrupted":
        return INTERRUPTED_EXIT
    if (nothing := no_measurement(outcome.summary)) is not None:
        why, command = nothing.sentence, with_store(f"pgpaces show {outcome.trial.id}")
        fail(RunError("measured-nothing", why=why, advice=nothing.advice, command=command))
        return RunError.exit_code
    if outcome.aborted:
        return RunError.exit_code
    return FAIL_EXIT if failed else 0
