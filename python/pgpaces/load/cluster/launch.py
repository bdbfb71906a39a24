"""Processes of Dask, here and on other machines. Imported only where they are started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, Security
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.deploy.ssh import Worker as SshWorker
from distributed.deploy.subprocess import SubprocessWorker

from pgpaces.core.errors import RunError
from pgpaces.core.home import python_path
from pgpaces.spec.load import GeneratorsPlan

# Dask has a port for pages in any case: here without any, on the loopback, with the cluster's key.
_PAGES = "127.0.0.1:0"
# One place for one generator; a limit of memory would stop it under load.
_OPTIONS: Mapping[str, Any] = {"nthreads": 1, "memory_limit": 0, "dashboard_address": _PAGES}


def _spec(**options: Any) -> str:
    return json.dumps({"cls": "distributed.Worker", "opts": {**_OPTIONS, **options}})


class GeneratorProcess(SubprocessWorker):
    def __init__(self, scheduler: str, folder: Path, name: Any = None) -> None:
        """folder: with the key of the cluster."""
        super().__init__(scheduler, name=name)
        self._folder = folder

    async def _start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "distributed.cli.dask_spec", self.scheduler),
            *("--spec", _spec(host="127.0.0.1")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": python_path(), **tls_variables(self._folder)},
            start_new_session=True,
        )


# What prints the Python of an installed pgpaces: its first line names it.
_PYTHON = (
    'for p in "$(command -v pgpaces)" "$HOME/.local/bin/pgpaces"; do'
    ' [ -f "$p" ] && exec head -n 1 "$p"; done'
)


class SshProcess(SshWorker):
    """A worker on another machine, which ends with its scheduler; its folder is removed then."""

    def __init__(self, scheduler: str, address: str, folder: Path, *, name: Any = None) -> None:
        super().__init__(scheduler, address, {}, {}, name=name)
        self._folder, self._host = folder, address

    async def start(self) -> None:
        import asyncssh

        try:
            await self._start()
        except (asyncssh.Error, OSError) as error:
            raise RunError("ssh-failed", host=self._host, why=str(error)) from None
        await ProcessInterface.start(self)

    async def _start(self) -> None:
        import asyncssh

        user, at, host = self._host.rpartition("@")
        ssh = await asyncssh.connect(host, **({"username": user} if at else {}))
        self.connection = ssh
        first = str((await ssh.run(f"bash -lc {shlex.quote(_PYTHON)}")).stdout)
        if not first.startswith("#!"):
            raise RunError("host-without-pgpaces", host=self.address)
        python = first.removeprefix("#!").strip()
        created = await ssh.run("mktemp -d -t pgpaces-XXXXXXXX")
        folder = str(created.stdout).strip()
        async with ssh.start_sftp_client() as sftp:
            for name in ("cert.pem", "key.pem"):
                await sftp.put(str(self._folder / name), f"{folder}/{name}")
        variables = " ".join(
            f"{name}={shlex.quote(value)}" for name, value in tls_variables(folder).items()
        )
        # By the address of this machine that the host has just been reached from.
        port = self.scheduler.rpartition(":")[2]
        own = ssh.get_extra_info("sockname")[0]
        scheduler = f"tls://[{own}]:{port}" if ":" in own else f"tls://{own}:{port}"
        spec = shlex.quote(_spec(name=host))
        worker = f"{python} -P -m distributed.cli.dask_spec {scheduler} --spec {spec}"
        self.proc = await ssh.create_process(
            f"trap 'rm -rf {folder}' EXIT; env {variables} {worker} & wait $!"
        )
        while "worker at" not in (line := await self.proc.stderr.readline()):
            if not line:
                raise RunError("generator-ended-at-once", host=self.address)
        weakref.finalize(self, self.proc.kill)


def tls_variables(folder: Path | str) -> dict[str, str]:
    cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    ways = [f"COMM__TLS__{role}" for role in ("SCHEDULER", "WORKER", "CLIENT")]
    variables = {
        "COMM__REQUIRE_ENCRYPTION": "True",
        "COMM__TLS__CA_FILE": cert,
        "WORKER__HTTP__ROUTES": "[]",
    }
    for way in (*ways, "SCHEDULER__DASHBOARD__TLS"):
        variables |= {f"{way}__CERT": cert, f"{way}__KEY": key}
    return {f"DASK_DISTRIBUTED__{name}": value for name, value in variables.items()}


def cluster(plan: GeneratorsPlan, security: Security, folder: Path) -> SpecCluster:
    """A cluster whose scheduler runs in this process. Raises OSError, RuntimeError, RunError."""
    workers: dict[Any, Any] = {
        host: {"cls": SshProcess, "options": {"address": host, "folder": folder}}
        for host in plan.hosts
    }
    local = {"cls": GeneratorProcess, "options": {"folder": folder}}
    workers = workers or dict.fromkeys(range(plan.count or 1), local)
    here = "" if plan.hosts else "127.0.0.1"  # "": every address
    options = {"host": here, "protocol": "tls", "security": security, "dashboard_address": _PAGES}
    pages = {
        "distributed.scheduler.http.routes": [],
        "distributed.scheduler.dashboard.tls.cert": str(folder / "cert.pem"),
        "distributed.scheduler.dashboard.tls.key": str(folder / "key.pem"),
    }
    with dask.config.set(pages):
        return SpecCluster(
            workers=workers,
            scheduler={"cls": Scheduler, "options": {**options, "dashboard": False}},
            security=security,
            silence_logs=logging.CRITICAL,
        )
