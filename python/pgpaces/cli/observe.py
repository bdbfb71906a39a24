"""`pgpaces observe`: samples of this machine, a line of JSON a second, for a run elsewhere."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import click

from pgpaces.cli import options

EXAMPLES = """\b
Examples:
  pgpaces observe --count 10
  pgpaces run reporting --target postgresql://pi4/bench --observe-command 'ssh pi4 pgpaces observe'
"""


@options.command(epilog=EXAMPLES)
@options.options(options.of("count"))
def observe(count: int | None) -> int:
    """Print samples of this machine, a line of JSON a second, until it is stopped.

    Every line has the time by two clocks, and the mean of each value over the second that ends
    there, with its unit. Values that cannot be read are missing. It needs no additional rights.
    """
    from pgpaces.monitor import host

    source = host.here(host.postmasters())
    looks = source.observe(threading.Event(), time.monotonic())
    for number, look in enumerate(itertools.islice(looks, count)):
        text = host.line(look, () if number else tuple(source.notes))
        try:
            click.echo(text)
        except BrokenPipeError:  # the reader has gone, so nothing may be flushed to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    return 0
