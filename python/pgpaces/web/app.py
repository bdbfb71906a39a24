"""The pages and event streams of `pgpaces serve`: results of a store, and what runs.

Every answer is a report, as the command line writes it; the store is read by its Python interface.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
import threading
from collections.abc import AsyncIterator, Callable
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pgpaces.core.errors import PgpacesError, PlanError, StoreError
from pgpaces.core.messages import message
from pgpaces.show import html
from pgpaces.store import address
from pgpaces.store.store import Store
from pgpaces.web import live
from pgpaces.web.listening import Listening
from pgpaces.web.security import Guard

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

    from pgpaces.show.section import Report

# Rows of a page of the list.
_RUNS, _EXPERIMENTS = 100, 30
_STATIC: list[str | tuple[str, str]] = [("pgpaces.web", "static"), ("pgpaces.show", "templates")]
_KEPT = {"cache-control": "max-age=3600"}
_WATCH_S = 1.0
_RETRY_MS = 1000
# Streams have no end of their own.
_FAREWELL_S = 1
# More are refused, with the status 503.
_CONNECTIONS_MAX = 500
# While a load runs, its CPUs are shared: one report at a time is computed and drawn.
_DRAWING = threading.Lock()


class Site(Struct, frozen=True):
    """What a server shows. place: of the store. load: the only one that its link opens, and that
    stop stops.
    """

    place: str | None
    load: live.ProcessLoad | None = None
    stop: Callable[[], None] | None = None

    def store(self) -> Store:
        """The store, opened once, and again if another file is in its place. Raises StoreError."""
        return _store(self.place, _file_at(self.place))


@lru_cache(4)
def _store(place: str | None, _: tuple[int, int] | None) -> Store:
    return Store.existing(place)


def _file_at(place: str | None) -> tuple[int, int] | None:
    """What tells the file of a store from others; None if there is none. Raises StoreError."""
    location = address.located(place)
    if not isinstance(location, Path):
        return None
    try:
        status = location.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def app(site: Site) -> Starlette:
    pages = _Pages(site)
    return Starlette(
        routes=[
            Route("/", pages.list),
            Route("/live", pages.live),
            Route("/runs/{name}", pages.run),
            Route("/experiments/{name}", pages.experiment),
            Route("/experiments/{name}/answer", pages.part),
            Route("/compare", pages.compare),
            Route("/trend/{name}", pages.trend),
            Route("/events/runs/{name}", pages.run_events),
            Route("/events/experiments/{name}", pages.experiment_events),
            Route("/stop", pages.stop, methods=["POST"]),
            Route(
                "/static/page.css",
                lambda _: Response(html.style_sheet(), media_type="text/css", headers=_KEPT),
            ),
            Mount("/static", _Static(packages=_STATIC)),
        ],
        exception_handlers={PgpacesError: _explained},
    )


class _Static(StaticFiles):
    """Files of pgpaces, which browsers keep for an hour."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers.update(_KEPT)
        return response


class _Pages:
    """Pages, and streams of events. Starlette builds a page in a thread, as it is no coroutine."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._follower: live.Follower | None = None

    def list(self, request: Request) -> Response:
        store, query = self._site.store(), request.query_params
        of = store.experiment(store.find_experiment(query["of"])) if "of" in query else None
        at = {name: _number(query.get(name, "")) for name in ("runs", "experiments")}
        size, skip = _RUNS + 1, at["runs"] * _RUNS
        runs = store.trials(size, experiment=of.id if of else None, single=of is None, skip=skip)
        size, skip = _EXPERIMENTS + 1, at["experiments"] * _EXPERIMENTS
        lines = [] if of else store.experiments(size, skip, damaged=True)
        return page(
            "list.html",
            address=store.address,
            of=of,
            runs=runs[:_RUNS],
            experiments=lines[:_EXPERIMENTS],
            at=at,
            older={"runs": len(runs) > _RUNS, "experiments": len(lines) > _EXPERIMENTS},
        )

    def live(self, request: Request) -> Response:
        try:
            if self._site.load:
                target = self._own()
            else:
                store = self._site.store()
                runs, rows = store.trials(live.NEWEST), store.experiments(live.NEWEST)
                paths = [f"/experiments/{row.id}" for row in rows if row.state == "running"]
                paths += [f"/runs/{run.id}" for run in runs if run.state == "running"]
                target = next(iter(paths), None)
        except StoreError:  # the first load makes the store
            target = None
        return page("waiting.html") if target is None else RedirectResponse(target, 303)

    def _own(self) -> str | None:
        load = self._site.load
        trial = next(load.trials(self._site.store()), None) if load else None
        if trial is None:
            return None
        return f"/experiments/{trial.place.experiment}" if trial.place else f"/runs/{trial.id}"

    def run(self, request: Request) -> Response:
        store = self._site.store()
        trial = store.head(store.find(request.path_params["name"]))
        if trial.state != "running":
            return _drawn(lambda: _report(self._site, trial.id))
        return self._live(request, f"/runs/{trial.id}", title=live.title(trial), trial=trial)

    def experiment(self, request: Request) -> Response:
        store = self._site.store()
        row = store.experiment(store.find_experiment(request.path_params["name"]))
        if row.state != "running":
            return _drawn(lambda: _report(self._site, row.id), trials=f"/?of={row.id}")
        return self._live(request, f"/experiments/{row.id}", title=row.name, experiment=row)

    def _live(self, request: Request, path: str, **values: Any) -> Response:
        trusted = self._site.stop is not None and request.scope.get("trusted", False)
        can_stop = trusted and path == self._own()
        columns, machine = (" ".join(names) for names in (live.COLUMNS, live.MACHINE))
        place = ("--store", self._site.store().address) if self._site.place else ()
        again = shlex.join(("pgpaces", "serve", *place))
        return page(
            "live.html",
            columns=columns,
            machine=machine,
            can_stop=can_stop,
            again=again,
            **values,
        )

    def part(self, request: Request) -> Response:
        store = self._site.store()
        id_ = store.find_experiment(request.path_params["name"])
        if not (ended := store.ended(id_)):
            return HTMLResponse(message("no-trial-ended"))
        state = store.experiment(id_).state
        with _DRAWING:
            return HTMLResponse(_answer(self._site, id_, tuple(ended), state=state))

    def compare(self, request: Request) -> Response:
        from pgpaces.answers.calls import compare

        names = request.query_params.getlist("run")
        if len(names) != 2:
            raise PlanError("choose-two-runs", count=len(names))
        store = self._site.place
        return _drawn(lambda: compare(*names, anyway=True, store=store).document())

    def trend(self, request: Request) -> Response:
        from pgpaces.answers.trend import trend

        name, store = request.path_params["name"], self._site.place
        return _drawn(lambda: trend(name, store=store).document())

    def stop(self, request: Request) -> Response:
        """Stops the load as Ctrl-C does; only with the token of the user who started it."""
        if self._site.stop is None or not request.scope.get("trusted", False):
            return PlainTextResponse(message("http-token-missing"), 403)
        self._site.stop()
        return PlainTextResponse("stopping\n", 202)

    async def run_events(self, request: Request) -> Response:
        """The seconds of a run, from the row after Last-Event-ID on."""
        store = await run_in_threadpool(self._site.store)
        trial_id = await run_in_threadpool(store.find, request.path_params["name"])
        if self._follower is None or self._follower.store is not store:
            self._follower = live.Follower(store)
        at = _number(request.headers.get("last-event-id", ""))
        messages = self._follower.messages(trial_id, at)
        return StreamingResponse(_events(messages), media_type="text/event-stream")

    async def experiment_events(self, request: Request) -> Response:
        store = await run_in_threadpool(self._site.store)
        id_ = await run_in_threadpool(store.find_experiment, request.path_params["name"])
        return StreamingResponse(_watched(store, id_), media_type="text/event-stream")


def _number(text: str) -> int:
    """The number of a page of a list, or of rows that a reader has; 0 for any other text."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 9 else 0


async def _events(messages: AsyncIterator[live.Message | None]) -> AsyncIterator[str]:
    yield f"retry: {_RETRY_MS}\n\n"
    async for each in messages:
        if each is None:
            yield ": \n\n"
        else:
            yield f"id: {each.at}\ndata: {msgspec.json.encode(each).decode()}\n\n"


async def _watched(store: Store, experiment_id: str) -> AsyncIterator[str]:
    yield f"retry: {_RETRY_MS}\n\n"
    before, silent_s = "", 0.0
    state: dict[str, Any] = {"runs": 0}

    def read() -> dict[str, Any]:
        row = store.experiment(experiment_id)
        trials = store.placed(experiment_id)
        running = [each.id for each in trials if each.state == "running"]
        return {"state": row.state, "runs": len(trials) - len(running), "running": running}

    while True:
        try:
            state = await asyncio.to_thread(read)
        except PgpacesError:
            state = {**state, "state": "lost", "running": []}
        if (text := msgspec.json.encode(state).decode()) != before or silent_s >= live.SILENCE_S:
            yield f"data: {text}\n\n"
            before, silent_s = text, 0.0
        if state["state"] != "running":
            return
        await asyncio.sleep(_WATCH_S)
        silent_s += _WATCH_S


def _report(site: Site, id_: str) -> Report:
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report

    return report(page_of(site.store(), (id_,)))


@lru_cache(8)
def _answer(site: Site, experiment_id: str, ended: tuple[str, ...], *, state: str) -> str:
    """The answer of an experiment so far, once for all readers. ended: the trials that it is of."""
    part = "The answer so far" if state == "running" else "The answer"
    return html.html(_report(site, experiment_id), served=True, part=part)


def _drawn(make: Callable[[], Report], trials: str = "") -> Response:
    with _DRAWING:
        return HTMLResponse(html.html(make(), served=True, trials=trials))


def _explained(_: Request, error: Exception) -> Response:
    assert isinstance(error, PgpacesError)
    return page("error.html", 404 if isinstance(error, PlanError) else 500, error=error)


def page(name: str, status: int = 200, **values: Any) -> Response:
    template = _templates().get_template(name)
    return HTMLResponse(template.render(version=version("pgpaces"), **values), status)


@cache
def _templates() -> Environment:
    from pgpaces.show.number_text import milliseconds, percent

    templates = html.environment("pgpaces.web")
    templates.filters["percent"] = percent
    templates.filters["milliseconds"] = lambda value: milliseconds(value, "–")
    return templates


def serve(site: Site, listening: Listening) -> None:
    server(site, listening).run(sockets=[listening.socket])


def server(site: Site, listening: Listening) -> uvicorn.Server:
    names: set[str] = set()
    if listening.required:
        own = socket.gethostname()
        names = {listening.host, own, socket.getfqdn(), f"{own.partition('.')[0]}.local"}
    guarded: Any = Guard(app(site), frozenset(names), listening.token, required=listening.required)
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_FAREWELL_S,
        ws="none",
        limit_concurrency=_CONNECTIONS_MAX,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    return uvicorn.Server(config)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message says more than that the server, at its end, ended streams of readers."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and "graceful" not in str(record.msg)
