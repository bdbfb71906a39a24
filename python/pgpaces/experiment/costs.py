"""What the machine of a trial's server costs, and which disk of it is written to.

Both are known of this machine by its host file and its /sys; of another by what an experiment file
says of its target, or a host file that is named for it.
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
    """The costs of a run's machine: of the file that is named for it, else of this machine's.

    None where the server is elsewhere and no file is named. Raises PlanError, TlsError.
    """
    from pgpaces import host_file

    if named is None and target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        if not is_local(for_driver(connection)):
            return None
    return host_file.find(named)


def facts(server: ServerFacts, costs: Costs | None) -> HostFacts:
    """What a trial's record says of the machine."""
    data, plain = server.data_directory, {} if costs is None else costs.plain()
    disk = host.disk_of(Path(data)) if data and is_local(server.target) else None
    return host.facts().but(data_disk=disk, costs=(plain,) if plain else ())
