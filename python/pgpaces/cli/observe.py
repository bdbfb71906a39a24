"""`pgpaces observe`: samples of this machine, a line of JSON a second, for a run elsewhere."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import click

from pgpaces.cli import options


@options.command()
@options.options(options.of("count"))
def observe(count: int | None) -> int:
    """Print measurements of this machine as one line of JSON per second, until interrupted.

    Each line contains the time from two clocks and, for each measurement, its mean over the last
    second and its unit. Values that cannot be read are missing. The command needs no special
    privileges.
    """
    from pgpaces.monitor import host

    source = host.ThisMachine(host.postmasters())
    looks = source.observe(threading.Event(), time.monotonic())
    for number, look in enumerate(itertools.islice(looks, count)):
        text = host.line(look, () if number else tuple(source.notes))
        try:
            click.echo(text)
        except BrokenPipeError:  # the reader has gone, so nothing may be flushed to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    return 0
