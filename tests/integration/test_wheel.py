"""The wheel, as somebody installs it who has no checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_the_wheel_installs_into_a_clean_environment_and_has_everything(tmp_path, pgpaces_home):
    build = ["maturin", "build", "--release", "--locked", "--out", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert "abi3" in wheel.name
    inside = set(zipfile.ZipFile(wheel).namelist())
    shipped = {
        path.relative_to(ROOT / "python").as_posix()
        for path in (ROOT / "python" / "pgpaces").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    assert shipped <= inside
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    program = tmp_path / "clean" / "bin"
    subprocess.run([program / "pip", "install", "--quiet", wheel], check=True)
    words = ["run", "select-only", "--scale", "1", "-c", "2", "-T", "5s", "--warmup", "0"]
    ran = subprocess.run(
        [program / "pgpaces", *words],
        env=os.environ | {"PGPACES_HOME": str(pgpaces_home)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert " tx/s (95% CI" in ran.stdout.splitlines()[0]
