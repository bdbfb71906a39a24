"""Checks what `make wheels` built: sizes, tags, metadata, and that nothing was left out."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZE_MAX = 15_000_000
# What pip gets from a source distribution: enough to build the engine.
SOURCES = ("Cargo.lock", "crates/engine/Cargo.toml", "crates/binding/Cargo.toml", "pyproject.toml")


def shipped() -> set[str]:
    """The files of the package: its modules, and its workloads, templates, profiles."""
    return {
        path.relative_to(ROOT / "python").as_posix()
        for path in (ROOT / "python" / "pgpaces").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


def manual() -> set[str]:
    """The manual pages, by their file names."""
    return {path.name for path in (ROOT / "packaging" / "data").rglob("*.1")}


def wheel_faults(path: Path) -> Iterator[str]:
    """What is wrong with a wheel, a sentence each."""
    inside = zipfile.ZipFile(path).namelist()
    if "-abi3-manylinux" not in path.name:
        yield "is not for every Python from 3.11 on and every Linux with the GNU C library"
    yield from (f"lacks {name}" for name in sorted(shipped() - set(inside)))
    if not any(name.endswith(".so") for name in inside):
        yield "lacks the engine"
    there = {Path(name).name for name in inside if "/share/man/man1/" in name}
    if "pgpaces.1" not in there or manual() - there:
        yield "lacks manual pages: make man"
    if not any(name.endswith("/licenses/LICENSE") for name in inside):
        yield "lacks LICENSE"
    if left := [name for name in inside if "__pycache__" in name]:
        yield f"has {len(left)} compiled files"


def sdist_faults(path: Path) -> Iterator[str]:
    """What is wrong with a source distribution, a sentence each."""
    with tarfile.open(path) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"python/{name}" for name in shipped()} | set(SOURCES)
    yield from (f"lacks {name}" for name in sorted(wanted - inside))


def main() -> int:
    """Prints a line for each file and each fault; the exit code is 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    faults = 0
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    for path in (*wheels, *sdists):
        size = path.stat().st_size
        found = [*(wheel_faults(path) if path.suffix == ".whl" else sdist_faults(path))]
        if size > SIZE_MAX:
            found.append(f"is larger than {SIZE_MAX / 1e6:.0f} MB")
        print(f"{path.name}: {size / 1e6:.1f} MB")
        for fault in found:
            print(f"  {fault}")
        faults += len(found)
    for wheel in wheels:
        subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], check=True)
    command = [sys.executable, "-m", "twine", "check", "--strict", *wheels, *sdists]
    subprocess.run(command, check=True)
    return 1 if faults or not wheels or not sdists else 0


if __name__ == "__main__":
    sys.exit(main())
