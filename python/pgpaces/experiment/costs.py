"""The costs of the machine of a trial's server, and the disk with the server's data.

For this machine they come from its host file and /sys; for another from the target in an
experiment file, or from a host file that is named for it.
"""

from __future__ import annotations

from pathlib import Path

from pgpaces import host
from pgpaces.costs import Costs
from pgpaces.experiment.site import for_driver
from pgpaces.facts import HostFacts, ServerFacts
from pgpaces.generators import engine as generator
from pgpaces.locality import is_local
from pgpaces.plan import TargetPlan


def of_target(target: TargetPlan, named: str | Path | None = None) -> Costs | None:
    """The costs of a run's machine: from the named file, else from this machine's.

    None if the server is elsewhere and no file is named. Raises PlanError, TlsError.
    """
    from pgpaces import host_file

    if named is None and target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        if not is_local(for_driver(connection)):
            return None
    return host_file.find(named)


def facts(server: ServerFacts, costs: Costs | None) -> HostFacts:
    """The facts of the machine in a trial's record."""
    data, plain = server.data_directory, {} if costs is None else costs.plain()
    disk = host.disk_of(Path(data)) if data and is_local(server.target) else None
    return host.facts().but(data_disk=disk, costs=(plain,) if plain else ())
