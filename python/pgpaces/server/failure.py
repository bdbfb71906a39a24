"""PostgreSQL's startup errors as errors of the catalog.

Pure: text in, ServerError out. Knows nothing of processes, folders and users.
"""

import re
from pathlib import Path

from pgpaces.core.errors import ServerError

LINES_SHOWN = 5


# The name of an error, and what PostgreSQL writes; its groups are values of the error. The first
# that matches anywhere in the output wins, so causes precede their consequences.
_CAUSES = {
    "disk-full": r"No space left on device|Disk quota exceeded",
    "permission-denied": r"Permission denied",
    "read-only-disk": r"Read-only file system",
    "data-of-other-build": r"unrecognized configuration parameter \"[^\"]+\" in file"
    r"|database files are incompatible with server",
    "no-such-setting": r"unrecognized configuration parameter \"(?P<setting>[^\"]+)\"",
    "bad-value-of-setting": (
        r"(?:invalid value for|valid range for|FATAL: ) *parameter \"(?P<setting>[^\"]+)\""
    ),
    "no-such-module": r"could not (?:access file|load library) \"(?P<library>[^\"]+)\"",
    "setting-not-supported": r"is not supported by this build|not supported on this platform",
    "memory-too-small": (
        r"could not map anonymous shared memory|could not create shared memory segment"
    ),
    "port-in-use": r"could not (?:bind|create listen socket)[^\n]*Address already in use",
    "no-loopback": r"could not (?:bind|create listen socket|translate host name)",
    "data-used-by-process": (
        r"lock file \"postmaster\.pid\" already exists"
        r"[\s\S]*\(PID (?P<pid>\d+)\)[^\"]*\"(?P<folder>[^\"]+)\""
    ),
    "data-used-by-earlier-server": r"pre-existing shared memory block",
    "data-of-other-user": r"has wrong ownership",
    "data-permissions": r"has invalid permissions",
    "user-without-name": r"could not look up effective user ID",
    "library-missing": r"error while loading shared libraries: (?P<library>\S+):",
    "data-damaged": r"could not locate a valid checkpoint record|PANIC:",
}
_OF_DATA = ("data-of-other-build", "data-of-other-user", "data-permissions", "data-damaged")

_PREFIX = re.compile(r"^.*?(?=\b(?:FATAL|PANIC|LOG|DETAIL|HINT): )")
_FATAL = re.compile(
    r"\b(?:FATAL|PANIC):(?!\s*the database system is)"
    r"|^\S*(?:initdb|postgres)\S*: (?:error: )?(?!warning)"
)
_REASON = re.compile(r"\bLOG: +could not |\bDETAIL: |\bHINT: +(?:Available|Valid|Value)")


def refusal(program: str, output: str, place: Path, *, data: Path | None) -> ServerError:
    """The error of a program that failed, with PostgreSQL's own line.

    output: all of it. place: the file with it, or the folder that it should fill. data: the folder
    of the server's data.
    """
    values = {"program": program, "why": reason(output)}
    for name, pattern in _CAUSES.items():
        if match := re.search(pattern, output):
            own = match.groupdict() | ({"data": data} if name in _OF_DATA else {})
            return ServerError(name, **values, **own).at(str(place))
    return ServerError("program-failed", **values).at(str(place))


def reason(output: str) -> str:
    """The fatal line with the line that explains it; without a fatal line the last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = next((line for line in lines if _FATAL.search(line)), None)
    if fatal is None:
        return last_lines(output)
    detail = next((f" ({_bare(line)})" for line in lines if _REASON.search(line)), "")
    return _bare(fatal) + detail


def last_lines(output: str, count: int = LINES_SHOWN) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "it wrote nothing"


def _bare(line: str) -> str:
    return _PREFIX.sub("", line).replace(":  ", ": ", 1)
