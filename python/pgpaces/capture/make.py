"""From a server's statistics to the folder of a workload: runs the stages in order."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.capture import folder, guess, logs, parser, script, uses
from pgpaces.capture.catalog import (
    Captured,
    CapturedScript,
    Entry,
    ExcludedStatement,
    ServerStatements,
    SourceKind,
    Type,
    by_reason,
    is_bulk,
    merged,
    ordered,
    script_name,
    share,
    weights,
)
from pgpaces.capture.guess import ValueSource
from pgpaces.capture.parser import Parsed, UnusableError, has_texts
from pgpaces.capture.reader import Reader, reading
from pgpaces.capture.uses import Catalog
from pgpaces.core.errors import ScriptError, WorkloadError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message
from pgpaces.core.texts import Say, decoded
from pgpaces.load import engine
from pgpaces.load.engine import for_driver
from pgpaces.spec import trust
from pgpaces.spec.workload import commands_in

TOP = 100
# Between the two readings of the calls.
COUNTED_S = 10.0
# Statements of a log between messages of progress.
_PROGRESS = 10_000
# The smallest share of explicit transactions that is noted, in percent of the calls.
_EXPLICIT_MIN = 0.1
_NUMBER = re.compile(r"\A'(-?(?:0|[1-9]\d{0,17})(?:\.\d+)?)'\Z")


class CaptureOptions(Struct, frozen=True):
    """Options of a capture. folder: None for one named after the database.

    logs: files of a server's log. top: largest number of statements. values: values of the
    database may be written into the folder.
    """

    dsn: str
    folder: Path | None = None
    logs: tuple[Path, ...] = ()
    top: int = TOP
    values: bool = True


class _Candidate(Struct, frozen=True):
    entry: Entry
    parsed: Parsed


def capture(options: CaptureOptions, say: Say = lambda _: None) -> Captured:
    """Makes the workload. say: reports progress. Raises WorkloadError, ServerError."""
    parser.parser()
    if options.folder is not None:
        folder.check(options.folder)
    connection = engine.resolve(options.dsn)
    engine.probe(connection)
    with reading(for_driver(connection)) as reader:
        with reader.transaction():
            server, read_s = reader.statements(), time.monotonic()
            path = options.folder or Path(folder.name_for(server.database))
            folder.check(path)
            candidates, excluded = _candidates(server.entries, options.top)
            functions = reader.functions(
                sorted({name for one in candidates for name in one.parsed.functions})
            )
            names = {name for one in candidates for name in one.parsed.relations}
            for function in functions.values():
                names |= set(parser.relations_of(parser.body(function)))
            catalog = Catalog(reader.tables(sorted(names)), functions)
            encoding = reader.encoding()
        # A log may be long, so it is read outside of a transaction.
        findings, logged = _logged(options, (server.database, encoding), candidates, say=say)
        with reader.transaction():
            stage = _Stage(reader, catalog, options.values, logged)
            scripts = _scripts(stage, candidates, excluded)
        rate = _rate(reader, server, scripts, read_s=read_s, say=say)
    if server.hidden[0]:
        excluded.append(ExcludedStatement("", UnusableError("statement-hidden"), *server.hidden))
    if not scripts:
        reasons = [
            message("statements-left-out", count=count, why=why)
            for why, count, *_ in by_reason(excluded)
        ]
        details = "; ".join([*map(str, server.findings), *reasons])
        raise WorkloadError("no-usable-statement", database=server.database, details=details)
    ours = [entry for entry in server.entries if not is_bulk(entry)]
    calls = sum(entry.calls for entry in ours) + server.hidden[0]
    workload = Captured(
        path,
        server,
        scripts,
        tuple(excluded),
        calls,
        sum(entry.total_ms for entry in ours) + server.hidden[1],
        rate,
        (*server.findings, *_assumptions(excluded, calls, scripts), *findings, *reader.lacks()),
    )
    holds = "statements-hold-log" if logged is not None else "statements-hold-values"
    folder.write(workload, message(holds if options.values else "statements-hold-ranges"))
    trust.confirm_made(path)
    return workload


def _rate(
    reader: Reader,
    before: ServerStatements,
    scripts: Sequence[CapturedScript],
    *,
    read_s: float,
    say: Say,
) -> float | None:
    """Calls of the scripts' statements per second, from a second reading 10 s after the first.

    The calls since a reset say less: statistics of one database may have been reset alone.
    """
    if not scripts:
        return None
    say(message("counting-calls", seconds_s=COUNTED_S))
    time.sleep(max(0.0, read_s + COUNTED_S - time.monotonic()))
    with reader.transaction():
        after = reader.statements()
    texts = {each.entry.text for each in scripts}
    was, now = (
        sum(entry.calls for entry in each.entries if entry.text in texts)
        for each in (before, after)
    )
    return (now - was) / (after.at_s - before.at_s) if now > was else None


def _candidates(
    entries: Sequence[Entry], top: int
) -> tuple[list[_Candidate], list[ExcludedStatement]]:
    """The `top` usable statements, most important first, and the others."""
    usable: list[_Candidate] = []
    excluded: list[ExcludedStatement] = []
    for entry in ordered(merged(entries)):
        if is_bulk(entry):
            reason = UnusableError("statement-bulk")
            excluded.append(ExcludedStatement(entry.text, reason, 0, 0.0))
            continue
        try:
            one = _Candidate(entry, parser.parse(entry.text))
            if len(usable) >= top:
                raise UnusableError("statement-beyond-top", top=top)
            usable.append(one)
        except UnusableError as error:
            excluded.append(_left_out(entry, error))
    return usable, excluded


def _left_out(entry: Entry, error: UnusableError) -> ExcludedStatement:
    # The traceback of the error itself holds the parsed statement.
    return ExcludedStatement(entry.text, copy(error), entry.calls, entry.total_ms)


def _logged(
    options: CaptureOptions, of: tuple[str, str], candidates: Sequence[_Candidate], *, say: Say
) -> tuple[tuple[Finding, ...], logs.LoggedParameters | None]:
    """The real parameters in the logs, with findings; None without logs. of: database, encoding."""
    if not options.logs:
        return (), None
    statements = [(one.parsed.text.decode(), one.parsed.tree) for one in candidates]
    logged = logs.LoggedParameters(statements)
    for path in options.logs:
        for statement in logs.read(path, *of):
            logged.add(statement)
            if logged.read % _PROGRESS == 0:
                say(message("reading-log", statements=logged.read))
    if not logged.matched:
        undecoded = logged.undecoded or None
        raise WorkloadError(
            "log-matches-nothing", count=logged.read, undecoded=undecoded, encoding=of[1]
        )
    values = {"matched": logged.matched, "statements": logged.read, "undecoded": logged.undecoded}
    return (finding("log-matched", **values, encoding=of[1]),), logged


class _Stage(Struct, frozen=True):
    """What all scripts are made with. values: values of the database may be written."""

    reader: Reader
    catalog: Catalog
    values: bool
    logged: logs.LoggedParameters | None


def _scripts(
    stage: _Stage, candidates: Sequence[_Candidate], excluded: list[ExcludedStatement]
) -> tuple[CapturedScript, ...]:
    """Scripts of the statements that the server accepts; the others are added to `excluded`."""
    scripts, statements = [], []
    for place, one in enumerate(candidates):
        entry = one.entry
        try:
            tuples = stage.logged.of(place) if stage.logged else []
            scripts.append(_script(stage, one, tuples))
            statements.append(one.parsed)
        except UnusableError as error:
            excluded.append(_left_out(entry, error))
    shares = weights([each.entry.calls for each in scripts])
    return tuple(
        replace(each, name=script_name(order, parsed.kind, names), weight=weight)
        for order, (each, parsed, weight) in enumerate(
            zip(scripts, statements, shares, strict=True), 1
        )
        for names in (parsed.relations or parsed.functions,)
    )


def _script(
    stage: _Stage, one: _Candidate, tuples: Sequence[tuple[int, dict[int, str]]]
) -> CapturedScript:
    """A statement as a script that the server accepts. Raises UnusableError."""
    reader = stage.reader
    if not stage.values and has_texts(one.parsed):
        raise UnusableError("statement-has-texts")
    types = _types(reader, one.parsed)
    of_parameter = uses.uses(one.parsed.tree, stage.catalog)
    literals = {spot.number for spot in one.parsed.spots if spot.typed is not None}
    sources = guess.sources(
        {
            number: guess.Parameter(
                of_parameter.get(number, ()), types.get(number), number in literals, stage.values
            )
            for number in one.parsed.numbers
        }
    )
    tuples, sources = _with_logged(tuples, sources, types)
    for each in sources.values():
        if each.kind is SourceKind.MISSING:
            raise UnusableError("statement-needs-log", function=each.how)
    accepted = _accepted(reader, one.parsed, sources, tuples=tuples, types=types)
    counts = Counter(source.kind.value for source in sources.values())
    text = decoded(reader.as_stored(folder.comments(one.entry, sources) + accepted.text))
    writes = one.parsed.writes or reader.may_write(one.parsed.functions)
    return CapturedScript(one.entry, "", 0, text, writes, counts)


def _types(reader: Reader, statement: Parsed) -> dict[int, Type]:
    """The types of the parameters; empty if the server cannot infer them."""
    parts, at = [], 0
    for spot in statement.spots:
        # The form `interval '1 day'` takes no parameter, so the query has a cast instead.
        begin = spot.start if spot.typed is None else spot.typed
        parts.append(statement.text[at:begin].decode())
        name = statement.text[begin : spot.start].decode().strip()
        parts.append(f"CAST(${spot.number} AS {name})" if name else f"${spot.number}")
        at = spot.end
    types = reader.parameters("".join([*parts, statement.text[at:].decode()]))
    return {} if isinstance(types, str) else dict(enumerate(types, 1))


def _with_logged(
    tuples: Sequence[tuple[int, dict[int, str]]],
    sources: Mapping[int, ValueSource],
    types: Mapping[int, Type],
) -> tuple[list[tuple[int, dict[int, str]]], dict[int, ValueSource]]:
    """Logged values for all parameters except inserted keys, which exist already."""
    every = dict(sources)
    if not tuples:
        return [], every
    new = {number for number, source in every.items() if source.kind is SourceKind.NEW}
    total = sum(count for count, _ in tuples)
    for number in every.keys() - new:
        how = message("values-logged", calls=total, different=len(tuples))
        # A parameter without a logged value, the rest of a longer list, keeps its own values.
        every[number] = replace(
            every[number], kind=SourceKind.LOG, how=how, choices=(), follows=None
        )
    numeric = {number for number, kind in types.items() if kind.category == "N"}
    rows: dict[tuple[tuple[int, str], ...], int] = {}
    for count, row in tuples:
        # A number has no quotes where a number is expected.
        key = tuple(
            (n, _NUMBER.sub(r"\1", text) if n in numeric else text)
            for n, text in row.items()
            if n not in new
        )
        rows[key] = rows.get(key, 0) + count
    by_count = sorted(rows.items(), key=lambda item: -item[1])
    return [(count, dict(key)) for key, count in by_count if key], every


def _accepted(
    reader: Reader,
    statement: Parsed,
    sources: Mapping[int, ValueSource],
    *,
    tuples: Sequence[tuple[int, dict[int, str]]],
    types: Mapping[int, Type],
) -> script.WrittenScript:
    """The script that the server accepts, with casts if necessary. Raises UnusableError."""
    # The likeliest first: values as they are, then cast to their types. Without types, other values
    # replace those of unknown parameters.
    variants = [(sources, types)]
    if not types:
        unknown = {n for n, source in sources.items() if source.kind is SourceKind.UNKNOWN}
        variants = [
            ({n: replace(s, sql=sql) if n in unknown else s for n, s in sources.items()}, {})
            for sql in ("1", "NULL")
        ]
    first_refusal: str | None = None
    for values, casts in [(sources, {}), *variants]:
        variant = script.write(statement, values, tuples, casts=casts)
        try:
            commands = commands_in("statement", variant.text)
        except ScriptError as error:
            raise UnusableError("statement-unscriptable", why=error.message) from None
        if sum(command.is_sql for command in commands) != variant.text.count("\n;\n"):
            raise UnusableError("statement-not-single")
        refusal = next((why for text in variant.probes if (why := reader.refusal(text))), None)
        if refusal is None:
            return variant
        first_refusal = first_refusal or refusal
    raise UnusableError("statement-refused", why=first_refusal)


def _assumptions(
    excluded: Sequence[ExcludedStatement], calls: int, scripts: Sequence[CapturedScript]
) -> Iterator[Finding]:
    """Findings about explicit transactions, and parameters that are guessed independently."""
    explicit = sum(
        each.calls
        for each in excluded
        if each.reason.name == "statement-of-transaction"
        and each.text.lower().startswith(("begin", "start"))
    )
    if share(explicit, calls) >= _EXPLICIT_MIN:
        yield finding("transactions-split", transactions=explicit)
    several = sum(
        sum(count for kind, count in each.sources.items() if kind != SourceKind.LOG) > 1
        for each in scripts
    )
    if several:
        yield finding("parameters-independent", statements=several)
