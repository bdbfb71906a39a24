"""What a load takes of the connections of a server.

On a server that pgpaces does not manage it is a guest: it takes at most half of what is free,
unless the user asked for clients; and it always leaves a few connections to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgpaces.core.errors import ConnectionsError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.database import identity
from pgpaces.database.identity import Room
from pgpaces.trial.components import ComponentLoad, clients_at
from pgpaces.trial.request import POOL, PRIMARY, Request
from pgpaces.trial.site import Site

if TYPE_CHECKING:
    from pgpaces.analysis.accumulator import Accumulator

# Sessions of pgpaces during a load: those that lock its data, a server's sensors, the guard.
_OF_DATA, _OF_SENSORS, _OF_GUARD = 2, 2, 2
# Connections that stay free on a server of others, beside those reserved for superusers.
LEFT_FREE = 3
# Clients that nobody asked for, where free connections cannot be counted.
UNSEEN = 20
# Connections where a pooler of ours hides their number: it takes 100, and sensors need some.
_OF_A_POOLER = 90
_HELD_BACK_MIN = 0.01


class Budget:
    """The connections of the servers of a trial. Raises ConnectionsError if they are too few."""

    def __init__(self, where: Site, request: Request) -> None:
        self._guest, self._where, self._request = not where.managed, where, request
        self._room: Room | None = None
        self._check()

    def clients(self) -> int:
        """The most that a load takes where nobody said how many, by what is free now."""
        self._room = identity.room(self._where.access, guest=self._guest)
        free = None if self._room is None else self._usable(PRIMARY, self._room)
        if not self._guest:
            return _OF_A_POOLER if free is None else free
        return UNSEEN if free is None else max(1, free // 2)

    def _check(self) -> None:
        request = self._request
        needs: Counter[str] = Counter()
        every = (request, *(other for _, other in request.background))
        for each in every:
            needs.update(clients_at(each, request.node_names))
        if request.pool is not None:
            through = needs.pop(POOL, 0)
            needs[PRIMARY] += min(through, request.pool.size or through)
        needs[PRIMARY] = needs[PRIMARY] or int(self._guest)
        for node, access in {PRIMARY: self._where.access, **self._where.standbys}.items():
            room = identity.room(access, guest=self._guest) if needs[node] else None
            if room is None or (free := self._usable(node, room)) >= needs[node]:
                continue
            name, numbers = "too-few-connections", {"enough": needs[node] + 20}
            if self._guest:
                name = "too-few-connections-left"
                numbers = {"sessions": room.others, "most": room.most, "reserved": LEFT_FREE}
            error = ConnectionsError(name, free=max(0, free), needed=needs[node], **numbers)
            raise error.at("" if node == PRIMARY else node)

    def _usable(self, node: str, room: Room) -> int:
        request = self._request
        free = room.free - _OF_SENSORS * request.observe
        if node == PRIMARY and not request.as_is:
            free -= _OF_DATA
        if self._guest:
            free -= LEFT_FREE + _OF_GUARD * request.trial.guard
        return free

    def line(self, dbname: str, clients: int) -> str:
        keywords, room = self._where.access.keywords, self._room
        host = "localhost" if is_local(keywords) else keywords.get("host", "")
        values = {"dbname": dbname, "host": host, "clients": clients}
        if room is None:
            return message("target-without-count", **values)
        values |= {"others": room.others, "free": room.free, "most": room.most}
        return message("target", **values)


def held_back(
    components: Sequence[ComponentLoad], accumulator: Accumulator, *, guest: bool
) -> Iterator[Finding]:
    """A finding if a load waited for clients that it did not take out of courtesy."""
    own = [component for component in components if not component.work.name]
    plan, taken = own[0].work.request.trial, sum(component.clients for component in own)
    wanted = plan.clients_for(None)
    if not guest or plan.clients is not None or taken >= wanted:
        return
    sent, at_once = accumulator.sent_count, accumulator.dispatch()[0].count
    waited = 1 - at_once / sent if sent else 0.0
    if waited < _HELD_BACK_MIN:
        return
    yield finding("connection-cap", percent=100 * waited, clients=taken, wanted=wanted)
