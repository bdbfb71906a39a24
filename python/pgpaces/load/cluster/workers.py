"""Generators by Dask: processes here, machines by SSH, or the workers of a cluster that exists.

Every program that reaches a port of Dask can run code there. A cluster that pgpaces starts has a
key of its own, which every connection needs; its folder is removed at the end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.locality import is_loopback
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.core.units import digits
from pgpaces.spec.load import GeneratorsPlan

if TYPE_CHECKING:
    from distributed import Client

    from pgpaces.load.cluster.agent import AgentHost
    from pgpaces.load.cluster.protocol import LoadOrder

_FOLDER = "pgpaces-cluster-"
T = TypeVar("T")
_START_S, _CONNECT_S, _CLOSE_S, _LOOK_S = 60.0, 15, 5, 2.0


class Worker(Struct, frozen=True):
    """A place for a generator: its name in messages, its address, its machine and program.

    of_host: places on its machine.
    """

    name: str
    address: str
    host: AgentHost
    of_host: int = 1

    def threads(self, clients: int, each: int) -> int:
        """As many as it has use for: one for `each` clients, for half of its part of the CPUs."""
        return max(1, min(self.host.cpus // 2 // self.of_host, clients // each))


class Workers:
    """Places for generators, and the connection to them. Close it at the end.

    here: all are on this machine, and out of reach for others.
    """

    def __init__(self, client: Client, stack: contextlib.ExitStack, plan: GeneratorsPlan) -> None:
        """As many as the plan has generators. Raises RunError, PlanError."""
        from pgpaces.load.cluster.agent import about

        self.client, self.plan, self._stack, self._own = client, plan, stack, about()
        self.lost: set[str] = set()  # addresses of those that a load has lost
        count = plan.count
        try:
            answers: dict[str, AgentHost] = self.wait(lambda: client._run(about), _START_S)
        except Exception as error:
            raise RunError("workers-without-pgpaces", why=str(error) or "no answer") from None
        hosts = dict(sorted(answers.items(), key=lambda each: (each[1].hostname, each[0])))
        if len(hosts) < (needed := count or 1):
            raise PlanError("too-few-workers", workers=len(hosts), needed=needed)
        chosen = list(hosts.items())[:count]
        # Hosts as they were typed; others have numbers or addresses.
        listed = ((a, str(info.get("name", ""))) for a, info in self._listed().items())
        names = {a: name for a, name in listed if not (name.isdigit() or "://" in name)}
        each = Counter(host.hostname for _, host in chosen)
        numbers: Counter[str] = Counter()
        self.workers: list[Worker] = []
        for address, host in chosen:
            of_host = each[host.hostname]
            numbers[host.hostname] += 1
            number = f"/{numbers[host.hostname]}" if of_host > 1 else ""
            name = names.get(address) or f"{host.hostname}{number}"
            self.workers.append(Worker(name, address, host, of_host))
            own = {"own_version": self._own.version, "own_build": self._own.build}
            theirs = {"version": host.version, "build": host.build}
            if list(own.values()) != list(theirs.values()):
                raise RunError("generator-of-other-version", generator=name, **theirs, **own)
        self.here = plan.here or self._is_here()

    def _is_here(self) -> bool:
        """Whether nothing of a cluster that exists can be reached from another machine.

        The loopback address of a scheduler may be that of a tunnel.
        """
        own = platform.node()
        addresses = (self.client.scheduler_info()["address"], *(w.address for w in self.workers))
        loopback = all(is_loopback(urlsplit(each).hostname or "") for each in addresses)
        return loopback and all(worker.host.hostname == own for worker in self.workers)

    def _listed(self) -> dict[str, Any]:
        """The workers that the scheduler has, by address; none once it is gone."""
        workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1).get("workers", {})
        return workers

    def are_there(self) -> bool:
        if self.lost or self.client.status != "running":
            return False
        return {worker.address for worker in self.workers} <= set(self._listed())

    def check_users(self) -> None:
        """Raises RunError if the functions of Python users would meet another Python."""
        for worker in self.workers:
            if (python := worker.host.python) != self._own.python:
                values = {"python": python, "own": self._own.python}
                raise RunError("generator-of-other-python", generator=worker.name, **values)

    def submit(self, worker: Worker, order: LoadOrder) -> Any:
        """The promise of an agent on a worker. Raises RunError without a connection to them."""
        from pgpaces.load.cluster.agent import Agent

        try:
            return self.client.submit(
                Agent,
                order,
                actor=True,
                workers=[worker.address],
                allow_other_workers=False,
                retries=0,
                pure=False,
            )
        except Exception as error:  # whatever Dask raises once its scheduler is gone
            raise RunError("generator-not-started", generator=worker.name, why=str(error)) from None

    def agent(self, worker: Worker, promise: Any) -> Any:
        """An agent once it is there. Raises what it raised, and RunError if its worker went."""
        while True:
            try:
                return promise.result(_LOOK_S)
            except TimeoutError:  # Dask would wait for a worker that is gone
                if worker.address not in self._listed():
                    self.lost.add(worker.address)
                    raise RunError("generator-left") from None

    def run(self, call: Callable[[], Any]) -> None:
        """Lets Dask's thread call this. From any thread, and from a signal handler."""
        assert self.client.loop is not None
        self.client.loop.add_callback(call)

    def wait(self, call: Callable[[], Coroutine[Any, Any, T]], most_s: float) -> T:
        """The result of a coroutine in Dask's thread. Raises TimeoutError."""
        result: T = self.client.sync(call, callback_timeout=most_s)
        return result

    def close(self) -> None:
        self._stack.close()


class Clusters:
    """The clusters of a run or an experiment: each is started when it is needed, and kept."""

    def __init__(self) -> None:
        self._running: dict[GeneratorsPlan, Workers] = {}

    def workers(self, plan: GeneratorsPlan, say: Say) -> Workers:
        """Places for its generators. Raises PlanError, RunError."""
        if plan in self._running and not self._running[plan].are_there():
            say(message("generators-restart"))
            self._running.pop(plan).close()
        if plan not in self._running:
            say(message("generators-start", plan=plan))
            self._running[plan] = _started(plan)
        return self._running[plan]

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].close()


def _started(plan: GeneratorsPlan) -> Workers:
    try:
        from distributed.versions import VersionMismatchWarning
    except ImportError as error:
        raise PlanError(
            "extra-missing", what="several generators", module=error.name, extra="cluster"
        ) from None
    for name in tuple(logging.root.manager.loggerDict):
        if name.startswith("distributed"):  # we report a lost worker ourselves
            logging.getLogger(name).setLevel(logging.CRITICAL)
    stack = contextlib.ExitStack()
    try:
        with warnings.catch_warnings():
            # Of libraries; what must be the same is compared by us.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            client = _client(plan, stack)
        return Workers(client, stack, plan)
    except (OSError, RuntimeError) as error:
        stack.close()
        raise RunError("generators-not-started", why=str(error)) from None
    except BaseException:
        stack.close()
        raise


def _client(plan: GeneratorsPlan, stack: contextlib.ExitStack) -> Client:
    """The connection to a cluster; the stack ends it, and a cluster that was started here."""
    from distributed import Client, Security

    if plan.cluster is not None:
        try:
            client = Client(plan.cluster, timeout=_CONNECT_S)
        except (OSError, ValueError, TypeError) as error:
            raise RunError("scheduler-silent", cluster=plan.cluster, why=str(error)) from None
        stack.callback(client.close, timeout=_CLOSE_S)
        return client
    from pgpaces.load.cluster import launch

    # A new key for this cluster, and the folder that has it.
    security = Security.temporary()
    _remove_lost()
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    (folder / "cert.pem").write_text(security.tls_ca_file)
    key = folder / "key.pem"  # the folder is its owner's alone
    key.touch(mode=0o600)
    key.write_text(security.tls_worker_key)

    cluster = launch.cluster(plan, security, folder)
    stack.callback(cluster.close, timeout=_CLOSE_S)
    client = Client(cluster, security=security, timeout=_CONNECT_S, direct_to_workers=True)
    stack.callback(client.close, timeout=_CLOSE_S)
    client.wait_for_workers(plan.count or 1, timeout=_START_S)
    return client


def _remove_lost() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        pid = digits(folder.name.removeprefix(_FOLDER).partition("-")[0])
        try:
            os.kill(pid or os.getpid(), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
