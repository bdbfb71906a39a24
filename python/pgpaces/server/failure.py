"""PostgreSQL's startup errors as one sentence and a hint.

Pure: text in, ServerError out. Knows nothing of processes, folders and users.
"""

import re

from pgpaces.core.errors import ServerError

LINES_SHOWN = 5
ANOTHER = "use another server: `pgpaces server start --name OTHER`, then `--server OTHER`"


# What PostgreSQL writes, and a hint with the pattern's groups {1}, {2} and the folder {data} of the
# data. The first that matches anywhere in the output wins, so causes precede their consequences.
_CAUSES = (
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full: free some space (`pgpaces server clean` drops prepared data), or put "
        "the data on another disk with --data-dir or PGPACES_HOME",
    ),
    (
        r"Permission denied",
        "the server's user must be able to enter every folder on that path: set PGPACES_HOME "
        "(or --data-dir) to a folder that every user can enter, such as /var/lib/pgpaces",
    ),
    (r"Read-only file system", "that disk is mounted read-only: choose another --data-dir"),
    (
        r"unrecognized configuration parameter \"([^\"]+)\" in file",
        f"the data was made by another version: remove {{data}}, or {ANOTHER}",
    ),
    (
        r"unrecognized configuration parameter \"([^\"]+)\"",
        "this version has no setting {1}: check its name, or choose another version",
    ),
    (
        r"(?:invalid value for|valid range for|FATAL: ) *parameter \"([^\"]+)\"",
        "give the setting {1} a value that this version takes",
    ),
    (
        r"could not (?:access file|load library) \"([^\"]+)\"",
        "this build has no library {1}: leave it out, or choose another installation",
    ),
    (
        r"is not supported by this build|not supported on this platform",
        "leave that setting out, or choose another installation",
    ),
    (
        r"could not map anonymous shared memory|could not create shared memory segment",
        "the server asks for more memory than there is: lower shared_buffers, max_connections or "
        "huge_pages",
    ),
    (
        r"could not (?:bind|create listen socket)[^\n]*Address already in use",
        "another program took that port meanwhile: start the server again",
    ),
    (
        r"could not (?:bind|create listen socket|translate host name)",
        "this machine has no address 127.0.0.1: TCP needs its loopback interface",
    ),
    (
        r"lock file \"postmaster\.pid\" already exists[\s\S]*\(PID (\d+)\)[^\"]*\"([^\"]+)\"",
        "a server that pgpaces did not start uses the data: stop process {1}; if that is no "
        "PostgreSQL, remove {2}/postmaster.pid",
    ),
    (
        r"pre-existing shared memory block",
        "processes of an earlier server still use the data: end them first",
    ),
    (
        r"has wrong ownership",
        f"the data belongs to another user: run pgpaces as that user, or {ANOTHER}",
    ),
    (r"has invalid permissions", "the data folder's permissions have changed: chmod 0700 it"),
    (
        r"database files are incompatible with server",
        f"the data was made by another version or build: remove {{data}}, or {ANOTHER}",
    ),
    (
        r"could not look up effective user ID",
        "PostgreSQL needs a user that the machine knows: run as one that is in /etc/passwd",
    ),
    (
        r"error while loading shared libraries: (\S+):",
        "install the library {1}, or choose another installation",
    ),
    (
        r"could not locate a valid checkpoint record|PANIC:",
        f"the data is damaged: remove {{data}}, or {ANOTHER}",
    ),
)

_PREFIX = re.compile(r"^.*?(?=\b(?:FATAL|PANIC|LOG|DETAIL|HINT): )")
_FATAL = re.compile(
    r"\b(?:FATAL|PANIC):(?!\s*the database system is)"
    r"|^\S*(?:initdb|postgres)\S*: (?:error: )?(?!warning)"
)
_REASON = re.compile(r"\bLOG: +could not |\bDETAIL: |\bHINT: +(?:Available|Valid|Value)")


def refusal(
    what: str, output: str, log: str | None = None, *, data: str = "its data"
) -> ServerError:
    """ServerError with what failed, PostgreSQL's own line and a hint.

    what: the subject of the message. output: the program's whole output. log: the file with it.
    data: the folder of the server's data.
    """
    hints = []
    for pattern, hint in _CAUSES:
        if match := re.search(pattern, output):
            hints.append(hint.format(match[0], *match.groups(), data=data))
            break
    if log:
        hints.append(f"the whole log is {log}")
    return ServerError(f"{what}: {reason(output)}", "; ".join(hints) or None)


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
