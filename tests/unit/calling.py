"""What tests of commands have in common: what a command said, and why it refused."""

from click.testing import Result

from pgpaces.core.errors import PgpacesError


def said(result: Result) -> str:
    """All of its output in one line. Fails where the command did."""
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def refused(result: Result) -> PgpacesError:
    """The error that it ended with. Fails where there is none of ours."""
    assert isinstance(result.exception, PgpacesError), result.output
    return result.exception
