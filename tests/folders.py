"""Where tests keep their files."""

import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Servers and stores wait for each write to reach a disk, so tests keep their files in memory.
DISK, MEMORY = Path("/tmp"), Path("/dev/shm")
IN_MEMORY = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30


class open_folder:  # noqa: N801 (a function in all but name)
    """A temporary folder that every user can enter; pytest's is root's alone.

    disk: on a disk, for a test about disks.
    """

    def __init__(self, prefix: str, *, disk: bool = False) -> None:
        where = DISK if disk or not IN_MEMORY else MEMORY
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        self.path.chmod(0o755)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
