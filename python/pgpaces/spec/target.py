"""Where the load goes: servers as frozen values, and the poolers in front of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct, field

from pgpaces.core.errors import PlanError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.spec.costs import Costs

_SECRETS = frozenset(
    ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
)


def without_secrets(keywords: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in keywords.items() if name not in _SECRETS}


class TargetPlan(Redacted, frozen=True):
    """Where the load goes: an external server by its DSN, or a managed server.

    dsn: anything libpq reads; None for a managed server. overrides: keywords with precedence over
    those of dsn.
    server: version or folder of the installation to start; None for the embedded one.
    own: a database that the user hands over. alter_system: settings of the whole server may be
    changed; they are put back. restart: a shell command that restarts it. observe_command: one that
    prints the output of `pgpaces observe` on its machine.
    tls: a managed server is reached by TCP, with TLS or without; None: by its socket.
    standbys: the number of standbys of a managed server. nodes: of an external one, name and DSN:
    standby1, standby2, ..., pool. typed: secrets and service of a DSN that overrides stand for.
    """

    # Not in the repr: they may hold a password.
    REDACTED: ClassVar = ("dsn", "overrides", "nodes", "typed")
    dsn: str | None = None
    server: str | None = None
    data_dir: str | None = None
    own: str | None = None
    fresh: bool = False
    server_settings: tuple[tuple[str, str], ...] = field(default=())
    overrides: tuple[tuple[str, str], ...] = ()
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    tls: bool | None = None
    standbys: int = 0
    nodes: tuple[tuple[str, str], ...] = ()
    typed: tuple[tuple[str, str], ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        managed = (f"standby{number}" for number in range(1, self.standbys + 1))
        return ("primary", *managed, *(name for name, _ in self.nodes))


Pooler = Literal["pgbouncer", "pgpool"]
PoolMode = Literal["session", "transaction"]


class PoolPlan(Struct, frozen=True):
    """A managed pooler in front of a managed server.

    mode: of pgbouncer; pgpool keeps a server connection for each session. size: the number of
    server connections; None: the number of clients.
    """

    pooler: Pooler
    mode: PoolMode = "session"
    size: int | None = None

    def __post_init__(self) -> None:
        """Raises PlanError for a mode that the pooler does not have."""
        if self.pooler == "pgpool" and self.mode != "session":
            raise PlanError("pgpool-pool-mode", mode=self.mode)


class Target(Redacted, frozen=True):
    """A machine with a server on it, by name.

    kind: machines of one kind are replicates of each other. costs: of the machine. alter_system:
    settings of the whole server may be changed (and are put back). restart: a shell command that
    restarts the server, for settings that need that. observe_command: one that prints the output of
    `pgpaces observe` on its machine. nodes: DSNs of servers that belong to it, by name: standby1,
    standby2, ..., pool.
    """

    REDACTED: ClassVar = ("dsn", "nodes")  # not in the repr: they may hold a password
    name: str
    dsn: str
    kind: str | None = None
    costs: Costs | None = None
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
