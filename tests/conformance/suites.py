"""PostgreSQL's own regression suites of pgbench, with us in the place of pgbench.

`python tests/conformance/suites.py [FOLDER]`, or `make conformance`: takes source packages of the
installed server and of the newest one in Debian's archive, runs their src/bin/pgbench/t against a
server of the same version, and prints what passed. The exit code is 1 where a case failed that is
not different on purpose. Needs Debian or Ubuntu, and the network the first time.

Nothing of the machine's is changed: apt has a configuration of its own, with sources added. What is
fetched stays in FOLDER (target/conformance).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from pgpaces.server import binaries, packages

FOLDER = Path("target/conformance")
MIRROR, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
WANTED = ("src/bin/pgbench/t", "src/test/perl")  # of a source package
MODULES = ("libipc-run-perl", "libio-pty-perl")  # what the suites' Perl needs besides its own
ENCODINGS = ("SQL_ASCII", "UTF8")  # the first is what the suites make themselves
SUITE_S = 1800
SYSTEM = (binaries.Source.DEBIAN, binaries.Source.PATH)
USER = "nobody"  # who runs servers where we are root, which they refuse

# What is different on purpose, by what a case's name contains; docs/reference/pgbench.md has each.
ON_PURPOSE = {
    'bad #clients stderr /(?^:invalid value "three" for option -c/--clients)/': (
        "the option is called --client since PostgreSQL 18"
    ),
}


class Package(Struct, frozen=True):
    """A source package: its name, version, and what it was unpacked to."""

    name: str
    version: str

    @property
    def series(self) -> str:
        """15"""
        return self.name.removeprefix("postgresql-")

    @property
    def upstream(self) -> str:
        """15.18"""
        return self.version.split(":")[-1].rsplit("-", 1)[0]


class Row(Struct, frozen=True):
    """How one file of a suite went."""

    suite: str
    version: str
    encoding: str
    passed: int
    failed: tuple[str, ...]
    ended: bool = True

    @property
    def wrong(self) -> list[str]:
        """What failed and is not different on purpose."""
        return [name for name in self.failed if meant(name) is None]


def meant(name: str) -> str | None:
    """Why a case is different on purpose; None where it is not."""
    return next((why for part, why in ON_PURPOSE.items() if part in name), None)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


class Archive:
    """Debian's sources, by an apt that has its own lists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("lists/partial", "cache/archives/partial", "sources"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        codename = platform_codename()
        lines = (f"{MIRROR} {codename}", f"{SECURITY} {codename}-security", f"{MIRROR} sid")
        sources = "".join(f"deb-src [signed-by={KEYRING}] {line} main\n" for line in lines)
        (folder / "sources.list").write_text(sources)
        self.options = [
            f"-oDir::Etc::SourceList={folder}/sources.list",
            "-oDir::Etc::SourceParts=/dev/null",
            f"-oDir::State::Lists={folder}/lists",
            f"-oDir::Cache={folder}/cache",
            "-oAPT::Sandbox::User=root",
        ]
        run("apt-get", *self.options, "-qq", "update")

    def packages(self) -> Iterator[Package]:
        """Every PostgreSQL server in it."""
        made_by = ("--format", "$(FILENAME)", "Created-By: Sources")
        for listed in run("apt-get", *self.options, "indextargets", *made_by).split():
            if not Path(listed).exists():
                continue
            text = run("/usr/lib/apt/apt-helper", "cat-file", listed)
            for block in re.split(r"\n{2,}", text):
                name = re.match(r"Package: (postgresql-\d+)$", block, re.M)
                version = re.search(r"^Version: (\S+)$", block, re.M)
                if name and version:
                    yield Package(name[1], version[1])

    def unpacked(self, package: Package) -> Path:
        """What the suite needs of a package; fetched once, checked by apt."""
        folder = self.folder / package.upstream
        if folder.exists():
            return folder
        source = ("source", "--download-only", "--only-source", "-qq")
        wanted = f"{package.name}={package.version}"
        run("apt-get", *self.options, *source, wanted, cwd=self.folder / "sources")
        prefix = f"{package.name}_{package.upstream}.orig.tar."
        (tar,) = (self.folder / "sources").glob(prefix + "*[!c]")
        with tarfile.open(tar) as archive:
            members = [m for m in archive if m.name.partition("/")[2].startswith(WANTED)]
            for member in members:
                member.name = member.name.partition("/")[2]
            part = folder.with_suffix(".part")
            packages.extract(archive, part, members)
        part.rename(folder)
        return folder


def platform_codename() -> str:
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.M)
    return found[1] if found else "stable"


def perl_modules(folder: Path) -> list[Path]:
    """Folders of modules that this machine's Perl lacks, from its own packages; none installed."""
    probe = ["perl", "-MIPC::Run", "-e1"]
    if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return []
    root = folder / "perl"
    if not root.exists():
        part = folder / "perl.part"
        part.mkdir(exist_ok=True)
        run("apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", *MODULES, cwd=part)
        for package in part.glob("*.deb"):
            run("dpkg-deb", "-x", package, part)
        part.rename(root)
    return [root / "usr/share/perl5", *root.glob("usr/lib/*/perl5/*")]


def stand_in(folder: Path, server: Path, encoding: str) -> None:
    """A folder of programs: pgbench, which is us, and an initdb that knows the encoding."""
    folder.mkdir()
    programs = {
        "pgbench": (
            f"#!{sys.executable}\nimport sys\nfrom pgpaces.cli.main import main\n"
            'sys.argv[0] = "pgbench"\nmain()\n'
        ),
        "initdb": f'#!/bin/sh\nexec {shlex.quote(str(server))}/initdb "$@" -E {encoding}\n',
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def as_user() -> list[str]:
    """What a command begins with: root becomes a user that may still read our files."""
    if os.geteuid() != 0:
        return []
    capabilities = "-all,+dac_override"
    return [
        "setpriv", "--reuid", USER, "--regid", "nogroup", "--clear-groups",
        "--inh-caps", capabilities, "--ambient-caps", capabilities,
    ]  # fmt: skip


def environment(source: Path, server: Path, work: Path, modules: list[Path]) -> Mapping[str, str]:
    perl = [source / "src/test/perl", *modules]
    return {
        "PATH": f"{work / 'bin'}:{server}:{os.environ['PATH']}",
        "PERL5LIB": ":".join(str(path) for path in perl),
        "HOME": str(work),
        "PGPACES_HOME": str(work / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "PG_REGRESS": "true",  # it would write pg_hba.conf for Windows only
        "TESTDIR": str(work),
        "TESTDATADIR": str(work / "data"),
        "TESTLOGDIR": str(work / "log"),
    }


def row(package: Package, test: Path, encoding: str, folder: Path, modules: list[Path]) -> Row:
    """Runs one file of a suite; what it printed stays beside its sources."""
    server = binaries.find(package.series).bin
    work = Path(tempfile.mkdtemp(prefix="pgpaces-suite-"))
    try:
        stand_in(work / "bin", server, encoding)
        if os.geteuid() == 0:
            shutil.chown(work, USER)
        name = f"{test.stem}.{encoding}"
        with (folder / f"{name}.out").open("w+") as out, (folder / f"{name}.err").open("w") as err:
            subprocess.run(
                [*as_user(), "perl", str(test)], cwd=work, stdout=out, stderr=err, timeout=SUITE_S,
                env=environment(folder, server, work, modules), check=False,
            )  # fmt: skip
            out.seek(0)
            tap = out.read()
        passed, failed = outcome(tap)
        ended = re.search(r"^1\.\.\d+$", tap, re.M) is not None
        suite = test.stem.partition("_")[2]
        return Row(suite, package.upstream, encoding, passed, failed, ended)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def outcome(tap: str) -> tuple[int, tuple[str, ...]]:
    """How many cases passed, and which did not. One marked as a thing to do may fail."""
    failed = []
    passed = 0
    for result, name, to_do in re.findall(r"^(ok|not ok) \d+ - (.*?)( # TODO .*)?$", tap, re.M):
        if result == "ok" or to_do:
            passed += 1
        else:
            failed.append(name.replace("\\#", "#"))
    return passed, tuple(failed)


def table(rows: list[Row]) -> Iterator[str]:
    line = "{:<21} {:>7}  {:<9} {:>5} {:>6} {:>6} {:>10}".format
    yield line("suite", "version", "encoding", "cases", "passed", "failed", "on purpose")
    for r in rows:
        cases, wrong = r.passed + len(r.failed), len(r.wrong)
        yield line(r.suite, r.version, r.encoding, cases, r.passed, wrong, len(r.failed) - wrong)
        if not r.ended:
            yield "  it did not end as it should"
        for name in r.failed:
            why = meant(name)
            yield f"  failed: {name}" if why is None else f"  on purpose: {name}: {why}"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else FOLDER).resolve()
    archive = Archive(folder)
    packages = sorted(archive.packages(), key=lambda p: binaries.version_key(p.upstream))
    installed = next(i for i in binaries.installations() if i.source in SYSTEM)
    chosen = [p for p in packages if p.upstream == installed.version]
    chosen = chosen or [p for p in packages if p.series == installed.series]
    modules = perl_modules(folder)
    rows = []
    for package in dict.fromkeys([*chosen[-1:], packages[-1]]):
        source = archive.unpacked(package)
        for test in sorted((source / "src/bin/pgbench/t").glob("*.pl")):
            encodings = ENCODINGS if "with_server" in test.stem else ENCODINGS[-1:]
            rows += [row(package, test, encoding, source, modules) for encoding in encodings]
    sys.stdout.write("\n".join([*table(rows), ""]))
    return int(any(r.wrong or not r.ended for r in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
