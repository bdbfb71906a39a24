"""What the machine of a trial's server costs, and which disk of it is written to.

Both are known of this machine by its host file and its /sys; of another by what an experiment file
says of its target, or a host file that is named for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgpaces import host
from pgpaces.costs import Costs
from pgpaces.experiment.site import for_driver
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


def facts(server: Mapping[str, Any], costs: Costs | None) -> dict[str, Any]:
    """What a trial's record says of the machine beside its facts. server: its facts."""
    found: dict[str, Any] = {}
    data = server.get("data_directory")
    if data and is_local(server["target"]) and (disk := host.disk_of(Path(data))):
        found["data_disk"] = disk
    if costs is not None and (plain := costs.plain()):
        found["costs"] = [plain]
    return found
