"""Side by side with pgbench and other tools on the same server and data: prints one table.

Every figure is a ratio of runs that alternate in one session. What cannot be measured here is said,
with the reason, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import answers
import characteristics
import connections
import coverage
import cpu
import generators
import instructions
import latency
import live
import pages
import rehearse
import report
import schedule
import sensors
import startup
import syscalls
import tools
import users
import wire
from figures import HEAD, Figure, Finding, Note, baseline, document, line, row, verdicts
from page import write
from place import confine, facts, place
from programs import ProgramError
from session import Section, Session

BASELINE = Path(__file__).with_name("baseline.json")
SECTIONS: dict[str, Section] = {
    "start": startup.section,
    "report": report.section,
    "answers": answers.section,
    "schedule": schedule.section,
    "instructions": instructions.section,
    "syscalls": syscalls.section,
    "cpu": cpu.section,
    "tls": wire.tls,
    "logins": wire.logins,
    "results": wire.results,
    "queueing": latency.queueing,
    "dispatch": latency.dispatch,
    "sensors": sensors.section,
    "users": users.section,
    "generators": generators.section,
    "connections": connections.many,
    "connecting": connections.connecting,
    "coverage": coverage.section,
    "rehearse": rehearse.section,
    "characteristics": characteristics.section,
    "tools": tools.section,
    "live": live.section,
    "pages": pages.section,
}
# They take long, and run only where they are named.
SIMULATED = ("coverage", "characteristics", "rehearse")
# What results cost, and not the load: not on its page.
RESULTS = (report.SECTION, answers.SECTION)
BACKENDS = ("epoll", "io_uring")
PAIRS = 9


def measure(session: Session, names: Sequence[str]) -> Iterator[Finding]:
    """What the sections find, as they find it; a program that fails ends its section only."""
    for name in names:
        title = name
        try:
            for finding in SECTIONS[name](session):
                title = finding.section
                yield finding
        except ProgramError as error:
            yield Note(title, f"not measured, nor what comes after it here: {error}")


def show(findings: Iterator[Finding]) -> list[Finding]:
    """Prints each as it comes; all of them."""
    shown: list[Finding] = []
    for finding in findings:
        if not shown or shown[-1].section != finding.section:
            print(f"\n{line((finding.section, *HEAD[1:]))}")
        if isinstance(finding, Note):
            print(f"  ({finding.text})", flush=True)
        else:
            print(line(row(finding)), flush=True)
        shown.append(finding)
    return shown


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="short runs, 3 pairs: a first look")
    parser.add_argument("--pairs", type=int, help=f"of runs against time (default {PAIRS})")
    parser.add_argument("--only", default="", metavar="WORDS", help="of coverage: these cells")
    parser.add_argument("--trials", type=int, default=0, help="of coverage: of each cell")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--server", help="installation to run against (default 15, if there)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all raw values")
    parser.add_argument("--page", type=Path, metavar="FILE", help="fill the page's measured part")
    parser.add_argument("--check", action="store_true", help="gates: counts against the baseline")
    parser.add_argument("--write-baseline", action="store_true", help="counts to baseline.json")
    given = parser.parse_args()
    if unknown := set(given.sections) - SECTIONS.keys():
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    return given


def kept(
    findings: Sequence[Finding], session: Session
) -> tuple[dict[str, float], dict[str, float]]:
    """The baseline: what this session should have measured, and the rest of it.

    The rest is of sections that were not asked for, and of backends that this machine's kernel does
    not allow, which is no fault of the program.
    """
    stored: dict[str, float] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    titles = tuple(f"{finding.section}: " for finding in findings)
    missing = {key for key in stored if any(f" {name}," in key for name in session.missing)}
    here = {key for key in stored if key.startswith(titles)} - missing
    return {k: stored[k] for k in here}, {k: stored[k] for k in stored.keys() - here}


def gate(findings: Sequence[Finding], session: Session) -> int:
    """Prints a verdict for each gated figure; the exit code."""
    wanted, _ = kept(findings, session)
    said = verdicts(baseline(findings), wanted)
    print()
    for verdict in said:
        print(f"{'ok ' if verdict.ok else 'BAD'} {verdict.text}")
    return 0 if said and all(verdict.ok for verdict in said) else 1


def main() -> int:
    """Measures, prints, writes what was asked for."""
    given = arguments()
    counting = given.check or given.write_baseline
    every = [name for name in SECTIONS if name not in SIMULATED]
    names = given.sections or (["instructions", "syscalls"] if counting else every)
    confine()
    began = time.monotonic()
    with place(given.server) as found:
        pairs = given.pairs or (3 if given.quick else PAIRS)
        backends = tuple(given.backends)
        session = Session(found, pairs, given.quick, backends, given.only, given.trials)
        about: dict[str, Any] = facts(found)
        print(", ".join(f"{name}: {value}" for name, value in about.items()))
        findings = show(measure(session, names))
        goals = [f for f in findings if isinstance(f, Figure) and f.met is not None]
        took = (time.monotonic() - began) / 60
        print(f"\n{sum(bool(f.met) for f in goals)} of {len(goals)} goals met, {took:.1f} min")
        if given.json:
            raw = {"facts": about, "pairs": session.pairs, "findings": document(findings)}
            given.json.write_text(json.dumps(raw, indent=1) + "\n")
        if given.page:
            paged = [finding for finding in findings if finding.section not in RESULTS]
            write(given.page, about, session.pairs, paged)
        if given.write_baseline:
            _, others = kept(findings, session)
            whole = {**others, **baseline(findings)}
            BASELINE.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
        return gate(findings, session) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
