"""A report of an experiment, and one whose every text is hostile."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from msgspec.structs import replace

from pgpaces.analysis.digest import Digest
from pgpaces.analysis.validity import Validity
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.findings import finding
from pgpaces.show.section import Report
from pgpaces.spec.design import Design
from tests.unit.experiments import WORKERS, experiment, made
from tests.unit.trials import changed, like

ABOUT = About(datetime(2026, 11, 2, tzinfo=UTC), "0.1.0", rerun="pgpaces sweep pi.toml", id="01E")
PLAN = Design({"clients": ("1", "4", "8"), WORKERS: ("0", "2")}, trials=2)
NASTY = "</pre><script>alert(1)</script>\x1b]0;x\x07\u202e\udc80 {{7*7}} [x](javascript:1) |a|`*_"


def page_of(digests: list[Digest], **about: str) -> Page:
    return gather(digests, replace(ABOUT, **about), experiment(design=PLAN))


@cache
def whole_page() -> Page:
    return page_of([made(slot, 20) for slot in PLAN.asks()])


@cache
def reported() -> Report:
    return report_of(whole_page())


@cache
def hostile() -> Page:
    """Every text that others give is nasty."""
    plan = Design({"clients": ("1", "4"), f"define.{NASTY}": (NASTY, "=1+1")})
    found, explained = [], whole_page().digests[0].trial.explained
    for slot in plan.asks():
        base = made(slot, 12)
        trial = base.trial
        scripts = [{"name": NASTY, "weight": 1, "commands": [[1, NASTY, True]]}] * 2
        said = tuple(replace(each, summary=NASTY, plan=NASTY, shape=NASTY) for each in explained)
        tracks = tuple(replace(each, name=NASTY, source=NASTY, unit=NASTY) for each in base.tracks)
        statements = tuple(
            replace(each, script=NASTY, text=NASTY) for each in base.summary.statements
        )
        summary = replace(
            base.summary,
            statements=statements,
            messages={"XX000": NASTY},
            failures={"XX000": 3},
            validity=Validity("invalid", (finding("generator-lost", NASTY, why=NASTY),)),
        )
        trial = changed(
            trial,
            workload=like(trial.workload, name=NASTY, scripts=scripts),
            server={"version": NASTY, "version_text": NASTY, "settings": {NASTY: NASTY}},
            host={"hostname": NASTY, "cpu": NASTY},
            notes=(finding(NASTY, NASTY, why=NASTY),),
            error=NASTY,
            explained=said,
        )
        found.append(replace(base, trial=trial, summary=summary, tracks=tracks))
    asked = experiment(design=plan, name=NASTY, question=NASTY, workload=NASTY)
    about = replace(ABOUT, rerun=NASTY, id=NASTY, failures=(("k", 1, NASTY),))
    return gather(found, about, asked)


@cache
def nasty_report() -> Report:
    return report_of(hostile())
