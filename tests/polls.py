"""The ways in which the engine can wait for connections."""

import pytest

from pgpaces.monitor import machine
from tests.needs import lacking


@pytest.fixture(params=["epoll", "io_uring"])
def each_poll(request):
    """Each way to wait; a module that calls this its `poll` runs its loads by both."""
    way: str = request.param
    if way == "io_uring" and (why := machine.io_uring()):
        lacking("io_uring", why)
    return way
