"""From a server's statistics to the folder of a workload: the stages meet here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces import trust
from pgpaces.capture import folder, guess, logs, parser, script, selection, uses
from pgpaces.capture.catalog import Captured, Entry, Left, Taken, Type
from pgpaces.capture.guess import SourceKind, ValueSource
from pgpaces.capture.parser import Parsed, UnusableError
from pgpaces.capture.reader import Reader, reading
from pgpaces.capture.uses import Catalog
from pgpaces.errors import ScriptError, WorkloadError
from pgpaces.experiment.site import for_driver
from pgpaces.generators import engine
from pgpaces.texts import decoded

TOP = 100
Say = Callable[[str], None]
# After so many statements of a log something is said.
_TOLD = 10_000
# Of the calls, in percent: fewer transactions begun by hand are not worth a word.
_SOME = 0.1
_NUMBER = re.compile(r"'(-?(?:0|[1-9]\d{0,17})(?:\.\d+)?)'")


class CaptureOptions(Struct, frozen=True):
    """What to make. folder: None for one that is called after the database.

    logs: files of a server's log. top: how many statements at most. values: those of the database
    may be written into the folder.
    """

    dsn: str
    folder: Path | None = None
    logs: tuple[Path, ...] = ()
    top: int = TOP
    values: bool = True


class _Candidate(Struct, frozen=True):
    entry: Entry
    parsed: Parsed


def capture(wanted: CaptureOptions, say: Say = lambda _: None) -> Captured:
    """Makes the workload. say: how far it has come. Raises WorkloadError, ServerError."""
    parser.parser()
    if wanted.folder is not None:
        folder.check(wanted.folder)
    connection = engine.resolve(wanted.dsn)
    engine.probe(connection)
    with reading(for_driver(connection)) as reader:
        with reader.transaction():
            seen = reader.statements()
            where = wanted.folder or Path(folder.name_for(seen.database))
            folder.check(where)
            candidates, left = _sifted(seen.entries, wanted.top)
            catalog = _catalog(reader, candidates)
        # A log may be long; no transaction waits for it.
        notes, real = _real(wanted, seen.database, candidates, say)
        with reader.transaction():
            made = _scripts(_Making(reader, catalog, wanted, real), candidates, left)
        notes += _lacks(reader)
    if seen.hidden[0]:
        left.append(Left("", "the role may not see it", *seen.hidden))
    if not made:
        raise WorkloadError(
            f"no statement of database {seen.database} can be taken",
            "; ".join([*seen.notes, *_why_left(left), "let the application run, and ask again"]),
        )
    taken = _weighted(made, candidates)
    calls = sum(entry.calls for entry in seen.entries) + seen.hidden[0]
    found = Captured(
        where,
        seen,
        taken,
        tuple(left),
        calls,
        sum(entry.total_ms for entry in seen.entries) + seen.hidden[1],
        _rate(taken, seen.seconds),
        (*seen.notes, *_transactions(left, calls), *_apart(taken), *notes),
    )
    folder.write(found, values=wanted.values, logged=real is not None)
    trust.confirm_made(where)
    return found


def _sifted(entries: Sequence[Entry], top: int) -> tuple[list[_Candidate], list[Left]]:
    """Statements that may be taken, those first that count most, and those that may not."""
    found: list[_Candidate] = []
    left: list[Left] = []
    for entry in selection.ordered(selection.merged(entries)):
        try:
            one = _Candidate(entry, parser.parse(entry.text))
            if len(found) >= top:
                raise UnusableError(f"beyond the {top} statements that count most")
            found.append(one)
        except UnusableError as error:
            left.append(Left(entry.text, str(error), entry.calls, entry.total_ms))
    return found, left


def _catalog(reader: Reader, candidates: Sequence[_Candidate]) -> Catalog:
    functions = reader.functions(
        sorted({name for one in candidates for name in one.parsed.functions})
    )
    names = {name for one in candidates for name in one.parsed.relations}
    for function in functions.values():
        names |= set(parser.relations_of(parser.body(function)))
    return Catalog(reader.tables(sorted(names)), functions)


def _real(
    wanted: CaptureOptions, database: str, candidates: Sequence[_Candidate], say: Say
) -> tuple[tuple[str, ...], logs.Real | None]:
    """Real parameters, where there is a log of them."""
    if not wanted.logs:
        return (), None
    real = logs.Real([(one.parsed.text.decode(), one.parsed.tree) for one in candidates])
    for path in wanted.logs:
        for logged in logs.read(path, database):
            real.add(logged)
            if real.read % _TOLD == 0:
                say(f"{real.read} statements of the log read")
    note = f"{real.matched} of {real.read} statements of the log are of those that were taken"
    if not real.matched:
        raise WorkloadError(
            f"the log has none of the statements that were taken: {real.read} were found in it",
            "log_min_duration_statement = 0 or log_statement = all writes them; the file's ending"
            " tells csvlog (.csv) and jsonlog (.json) from stderr",
        )
    return (note,), real


class _Making(Struct, frozen=True):
    """What every script is made with."""

    reader: Reader
    catalog: Catalog
    wanted: CaptureOptions
    real: logs.Real | None


def _scripts(making: _Making, candidates: Sequence[_Candidate], left: list[Left]) -> list[Taken]:
    """Those that the server would run; the others are added to what is left out."""
    made = []
    for place, one in enumerate(candidates):
        try:
            made.append(_script(making, one, making.real.of(place) if making.real else []))
        except UnusableError as error:
            left.append(Left(one.entry.text, str(error), one.entry.calls, one.entry.total_ms))
    return made


def _script(
    making: _Making, one: _Candidate, tuples: Sequence[tuple[int, dict[int, str]]]
) -> Taken:
    """A statement as a script that the server would run. Raises UnusableError."""
    reader = making.reader
    types = _types(reader, one.parsed)
    found = uses.uses(one.parsed.tree, making.catalog)
    literals = {spot.number for spot in one.parsed.spots if spot.typed is not None}
    sources = guess.sources(
        {
            number: guess.Parameter(
                found.get(number, ()), types.get(number), number in literals, making.wanted.values
            )
            for number in one.parsed.numbers
        }
    )
    tuples, sources = _with_real(tuples, sources, types)
    written = _accepted(reader, one.parsed, sources, tuples, types)
    counts = dict.fromkeys((source.kind.value for source in sources.values()), 0)
    for source in sources.values():
        counts[source.kind.value] += 1
    text = decoded(reader.as_stored(folder.comments(one.entry, sources) + written.text))
    writes = one.parsed.writes or reader.may_write(one.parsed.functions)
    return Taken(one.entry, "", 0, text, writes, counts)


def _types(reader: Reader, statement: Parsed) -> dict[int, Type]:
    """The types of the parameters; none where the server cannot tell."""
    parts, at = [], 0
    for spot in statement.spots:
        # The form `interval '1 day'` takes no parameter, so it is asked for as a cast.
        begin = spot.start if spot.typed is None else spot.typed
        parts.append(statement.text[at:begin].decode())
        name = statement.text[begin : spot.start].decode().strip()
        parts.append(f"CAST(${spot.number} AS {name})" if name else f"${spot.number}")
        at = spot.end
    found = reader.parameters("".join([*parts, statement.text[at:].decode()]))
    if isinstance(found, str):
        return {}
    return dict(enumerate(found, 1))


def _with_real(
    tuples: Sequence[tuple[int, dict[int, str]]],
    sources: Mapping[int, ValueSource],
    types: Mapping[int, Type],
) -> tuple[list[tuple[int, dict[int, str]]], dict[int, ValueSource]]:
    """Real values for all parameters but keys that are inserted, which are there already."""
    every = dict(sources)
    if not tuples:
        return [], every
    new = {number for number, source in every.items() if source.kind is SourceKind.NEW}
    total = sum(count for count, _ in tuples)
    for number in every.keys() - new:
        why = f"from the log: {total} calls, {len(tuples)} different"
        # A place that no tuple fills, the rest of a longer list, keeps its own values.
        every[number] = replace(
            every[number], kind=SourceKind.LOG, why=why, choices=(), follows=None
        )
    rows: dict[tuple[tuple[int, str], ...], int] = {}
    for count, row in tuples:
        key = tuple((n, _bare(v, types.get(n))) for n, v in row.items() if n not in new)
        rows[key] = rows.get(key, 0) + count
    ordered = sorted(rows.items(), key=lambda item: -item[1])
    return [(count, dict(key)) for key, count in ordered if key], every


def _bare(value: str, kind: Type | None) -> str:
    """A number without its quotes, where a number is expected."""
    found = _NUMBER.fullmatch(value)
    return found[1] if found and kind is not None and kind.category == "N" else value


def _accepted(
    reader: Reader,
    statement: Parsed,
    sources: Mapping[int, ValueSource],
    tuples: Sequence[tuple[int, dict[int, str]]],
    types: Mapping[int, Type],
) -> script.WrittenScript:
    """The script, its values cast to the types wanted if need be. Raises UnusableError."""
    refusal: str | None = None
    for tried, casts in _ways(sources, types):
        written = script.write(statement, tried, tuples, casts)
        try:
            found = engine.commands("statement", written.text)
        except ScriptError as error:
            raise UnusableError(f"does not stand in a script: {error.message}") from None
        if sum(command.is_sql for command in found) != written.text.count("\n;\n"):
            raise UnusableError("is not one command in a script")
        refused = next((why for text in written.probes if (why := reader.refusal(text))), None)
        if refused is None:
            return written
        refusal = refusal or refused
    raise UnusableError(f"the server refuses it: {refusal}")


def _ways(
    sources: Mapping[int, ValueSource], types: Mapping[int, Type]
) -> Iterator[tuple[Mapping[int, ValueSource], Mapping[int, Type]]]:
    """What may be tried, the likeliest first: values as they are, then cast to their types.

    Where the server cannot tell these, values of which nothing is known become others.
    """
    yield sources, {}
    if types:
        yield sources, types
        return
    for sql in ("1", "NULL"):
        yield (
            {
                number: replace(source, sql=sql) if source.kind is SourceKind.UNKNOWN else source
                for number, source in sources.items()
            },
            {},
        )


def _lacks(reader: Reader) -> tuple[str, ...]:
    found = []
    if reader.hidden_columns:
        some = ", ".join(sorted(reader.hidden_columns)[:3])
        found.append(
            f"statistics of {len(reader.hidden_columns)} columns are hidden from this role ({some}"
            f"{', ...' if len(reader.hidden_columns) > 3 else ''}): GRANT SELECT on the tables, or"
            " pg_read_all_data, shows them"
        )
    if reader.unknown_tables:
        names = ", ".join(sorted(reader.unknown_tables)[:3])
        found.append(f"tables without statistics: {names}: they are empty, or wait for ANALYZE")
    return tuple(found)


def _transactions(left: Sequence[Left], calls: int) -> tuple[str, ...]:
    begun = sum(
        each.calls
        for each in left
        if each.reason == parser.TRANSACTION and each.text.lower().startswith(("begin", "start"))
    )
    if selection.share(begun, calls) < _SOME:
        return ()
    return (
        f"{begun} transactions were begun by hand; which statements were in one is not known, so"
        " here each is a transaction of its own",
    )


def _apart(taken: Sequence[Taken]) -> tuple[str, ...]:
    """What guessing each parameter by itself may cost."""
    several = sum(
        sum(count for kind, count in each.sources.items() if kind != SourceKind.LOG) > 1
        for each in taken
    )
    if not several:
        return ()
    return (
        f"{several} statements have several parameters that are guessed, each by itself: where"
        " their values must belong together they find nothing, or fail; --log takes real ones",
    )


def _why_left(left: Sequence[Left]) -> list[str]:
    """How many statements there are, and what keeps each of them out."""
    return [f"left out are {row[1]} of this kind: {row[0]}" for row in selection.by_reason(left)]


def _weighted(made: Sequence[Taken], candidates: Sequence[_Candidate]) -> tuple[Taken, ...]:
    of = {one.entry.text: one.parsed for one in candidates}
    found = []
    weights = selection.weights([each.entry.calls for each in made])
    for order, (each, weight) in enumerate(zip(made, weights, strict=True), 1):
        statement = of[each.entry.text]
        names = statement.relations or statement.functions
        name = selection.script_name(order, statement.kind, names)
        found.append(replace(each, name=name, weight=weight))
    return tuple(found)


def _rate(taken: Sequence[Taken], seconds: float | None) -> float | None:
    """Calls a second of what was taken, since the statistics began."""
    if not seconds:
        return None
    return sum(each.entry.calls for each in taken) / seconds
