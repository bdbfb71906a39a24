"""The load engine (Rust). Times are integer nanoseconds unless a name says otherwise."""

from collections.abc import Sequence
from typing import Any, final

from pgpaces.core.errors import PgpacesError

__all__ = [
    "Actors",
    "Conninfo",
    "Histogram",
    "Interval",
    "Ledger",
    "Route",
    "Run",
    "StatementTally",
    "Tally",
    "Times",
    "binomial_cdf",
    "chi_squared_quantile",
    "find_route",
    "fisher_above",
    "histogram_count",
    "histogram_counts",
    "parse_script",
    "rehearse",
    "resolve",
    "student_cdf",
    "student_quantile",
]

@final
class Conninfo:
    """Connection parameters, resolved as libpq does it."""

    def keywords(self) -> dict[str, str]:
        """Every keyword that has a value, which may be empty, the password included."""

    @property
    def warnings(self) -> list[PgpacesError]:
        """Settings that were ignored despite their purpose (a readable password file, ...)."""

    def password(self) -> str | None:
        """The password of all hosts, also from the password file; None if they differ."""

@final
class Route:
    """The way to a server that was found to work: host, TLS, login."""

    @property
    def server_version(self) -> str:
        """The version as the server reports it."""

    @property
    def unencrypted(self) -> PgpacesError | None:
        """Why TLS failed, if the connection goes on without it (sslmode=prefer)."""

    @property
    def address(self) -> str:
        """The socket's path or address:port."""

@final
class Times:
    """A distribution of times; `histogram` is HdrHistogram's V2 encoding, empty of nothing."""

    @property
    def count(self) -> int: ...
    @property
    def sum_ns(self) -> int: ...
    @property
    def square_sum(self) -> float: ...
    @property
    def max_ns(self) -> int: ...
    @property
    def histogram(self) -> bytes: ...

@final
class Tally:
    """Counts of one due second and script; see pgpaces.spec.result.Tally."""

    @property
    def due_second(self) -> int: ...
    @property
    def script(self) -> int: ...
    @property
    def due(self) -> int: ...
    @property
    def on_time(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def failed(self) -> list[tuple[str, int]]: ...
    @property
    def unfinished(self) -> int: ...
    @property
    def latency(self) -> Times: ...
    @property
    def lag(self) -> Times: ...
    @property
    def service(self) -> Times: ...
    @property
    def retried(self) -> int: ...
    @property
    def retries(self) -> int: ...

@final
class StatementTally:
    """Times of one command of a script."""

    @property
    def script(self) -> int: ...
    @property
    def command(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def times(self) -> Times: ...

@final
class Interval:
    """What became known in one second; see pgpaces.spec.result.Interval."""

    @property
    def second(self) -> int: ...
    @property
    def tallies(self) -> list[Tally]: ...
    @property
    def statements(self) -> list[StatementTally]: ...
    @property
    def messages(self) -> list[tuple[str, str]]: ...
    @property
    def cpu_ns(self) -> list[int]: ...
    @property
    def dispatch(self) -> Times: ...
    @property
    def in_flight_ns(self) -> int: ...
    @property
    def pending_ns(self) -> int: ...
    @property
    def waited_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int: ...
    @property
    def connects(self) -> int: ...
    @property
    def disconnects(self) -> int: ...
    @property
    def outages(self) -> int: ...
    @property
    def outage_ns_max(self) -> int: ...
    @property
    def down(self) -> int: ...
    @property
    def some_down_ns(self) -> int: ...
    @property
    def all_down_ns(self) -> int: ...
    @property
    def notes(self) -> list[tuple[str, str, str]]: ...
    @property
    def connect_ns(self) -> int: ...
    @property
    def aborted(self) -> list[int]: ...
    @property
    def lines(self) -> list[tuple[str, str]]: ...
    @property
    def missed(self) -> list[tuple[int, int, int, int, int, str, str]]:
        """At most 65,536 of those that were not on time: when each was due, sent and done (ns), its
        script, the server's process (0: unknown), what became of it, and its SQLSTATE."""

@final
class Histogram:
    """A histogram of times, 3 significant digits from 1 ns to 1 h; longer ones count as 1 h."""

    def __new__(cls) -> Histogram: ...
    def add(self, encoded: bytes) -> None:
        """Adds an encoded histogram; empty bytes add nothing. ValueError if it is none."""

    def record(self, ns: int) -> None:
        """Counts one time."""

    def encode(self) -> bytes:
        """HdrHistogram's V2 encoding."""

    @property
    def count(self) -> int: ...
    def value_at_rank(self, rank: int) -> int | None:
        """The time with this rank in ascending order, from 1; None outside the count."""

@final
class Run:
    """A load whose clients are connected, or that is going on.

    `plan` is an object with the attributes of EnginePlan.
    """

    def __new__(cls, plan: Any, scripts: Sequence[tuple[str, int, bytes]], route: Route) -> Run:
        """Connects all clients.

        scripts: name, weight and text (bytes) of each. Raises PgpacesError.
        """

    def begin(self, ahead_ns: int) -> None:
        """Lets the load begin so many ns from now, 10 ms at least; once.

        Loads whose `ahead_ns` names the same moment begin together.
        """

    def next_interval(self) -> Interval | None:
        """Begins the load if it has not begun, and waits for the next second; None at its end.

        Raises PgpacesError for why the run ended early, behind the last interval.
        """

    def stop(self) -> None:
        """Lets nothing new fall due; the backlog is served within the grace period."""

    def abort(self) -> None:
        """Ends at once; what is in flight is cancelled and stays unfinished."""

    @property
    def end_ns(self) -> int: ...
    @property
    def connect_ns(self) -> int: ...
    @property
    def poll(self) -> str:
        """How its threads wait for their connections: epoll, kqueue or io_uring."""

@final
class Actors:
    """The users of one process: when each acts, and what became of it.

    Times are ns from the start of the measured part. `plan` is an object with the attributes of
    EnginePlan, whose threads are the processes; weights: of the tasks.
    """

    def __new__(cls, plan: Any, weights: Sequence[int], number: int) -> Actors:
        """Those of process `number`. Raises PlanError."""

    @property
    def users(self) -> tuple[int, int]:
        """The number of its first user among all, and how many it has."""

    def owns(self, number: int) -> bool:
        """Whether transaction `number` of an open load is one of this generator's."""

    def next(
        self, user: int, since_ns: int, end_ns: int, number: int = 0
    ) -> tuple[int, int] | None:
        """When its `user`, free since then, acts next, and which task that is.

        None where nothing more is due before `end_ns`. number: of an open load, the next
        transaction that nobody has taken; it may not fall from call to call.
        """

    def start(self, user: int, since_ns: int, now_ns: int) -> bool:
        """It is to act now; false where it is too late, which is counted."""

    def end(self, user: int, now_ns: int, failure: bytes | None = None) -> None:
        """What it did is done. failure: its class, 5 bytes."""

    def message(self, failure: bytes, text: str) -> None:
        """What a failure says: kept once for each class and second."""

    def say(self, text: str) -> None:
        """A line for the user to see."""

    def abandon(self, now_ns: int, end_ns: int) -> None:
        """Nothing falls due at `end_ns` or later; what is not done now stays unfinished."""

    def fetch(self, now_ns: int, cpu_ns: int) -> list[bytes]:
        """The seconds that are over; cpu_ns: CPU time since they were fetched last."""

    def fetch_last(self, now_ns: int, cpu_ns: int) -> list[bytes]:
        """The same with the second that goes on: its last."""

@final
class Ledger:
    """The accounts of a load of users, from what their processes tell of each second."""

    def __new__(cls, plan: Any, weights: Sequence[int]) -> Ledger:
        """As Actors. Raises PlanError."""

    def interval(self, told: Sequence[bytes], end_ns: int) -> Interval:
        """The next second, of which each process has told this. Raises RunError."""

    def last(self, told: Sequence[bytes], end_ns: int, taken: int, lost: bool) -> Interval:
        """The last one. taken: of an open load, how many were; lost: a process went down."""

def student_cdf(freedom: float, t: float) -> float:
    """P(T <= t) of Student's distribution. ValueError for freedom that is not positive."""

def student_quantile(freedom: float, p: float) -> float:
    """The t with P(T <= t) = p. ValueError outside 0 to 1."""

def binomial_cdf(k: float, n: float, p: float) -> float:
    """P(B <= k) of n events, each with probability p. ValueError outside 0 to 1."""

def chi_squared_quantile(freedom: float, p: float) -> float:
    """The x with P(X <= x) = p of the chi-squared distribution. ValueError outside 0 to 1."""

def fisher_above(above: float, below: float, x: float) -> float:
    """P(F > x) of the ratio of two variances with these degrees of freedom."""

def resolve(dsn: str, overrides: dict[str, str]) -> Conninfo:
    """Resolves a connection string, URI or database name. Raises PgpacesError."""

def find_route(conninfo: Conninfo) -> Route:
    """Logs in once to find the way to a server. Raises PgpacesError."""

def parse_script(
    name: str, text: str | bytes, parameters: bool = False
) -> list[tuple[int, bytes, bool]]:
    """The commands of a script: line, first line of text, whether it is SQL.

    text: a string of ASCII characters is not copied.

    parameters: its SQL is to be sent with parameters, of which there must not be too many.

    Raises ScriptError with file, line, column and a caret.
    """

def rehearse(
    name: str, text: bytes, variables: Sequence[tuple[bytes, bytes]], seed: int
) -> list[tuple[int, bytes]]:
    """The SQL of one execution of a script: the place of each command in `parse_script`'s list, and
    its text as the simple protocol would send it. Needs no server.

    What depends on variables that a server or a shell would set is left out. Raises ScriptError,
    also where a client would give up, and PlanError for names that cannot be variables.
    """

def histogram_count(encoded: bytes) -> int:
    """How many times an encoded histogram counts; empty bytes count none.

    ValueError where it is not one of ours: truncated, of another shape, counting the impossible.
    """

def histogram_counts(encoded: bytes, values_ns: Sequence[int]) -> list[int]:
    """How many of its times are at most as long as each of these; ValueError if it is none."""
