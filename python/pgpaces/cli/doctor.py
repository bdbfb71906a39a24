"""`pgpaces doctor`: the parts that pgpaces finds, and what each missing one would add."""

from __future__ import annotations

from pgpaces.cli import options

NOT_WORKING_EXIT = 5


@options.command()
@options.options(options.of("json"))
def doctor(as_json: bool) -> int:
    """Show what pgpaces finds on this machine, and what each missing component enables.

    The command does not start a server, download anything, or create a store. The exit code is 0
    unless pgpaces itself cannot work.
    """
    from pgpaces.answers import doctor as question
    from pgpaces.cli.output import show

    diagnosis = question.diagnose()
    show(question.section(diagnosis), as_json=as_json)
    return 0 if diagnosis.works else NOT_WORKING_EXIT
