"""What is checked of wheels before they are published, and the manual pages in them."""

import importlib.util
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import click
import pytest

from pgpaces.cli.main import HELP, cli
from tests.needs import needs

PACKAGING = Path(__file__).parents[2] / "packaging"
NAME = "pgpaces-0.1.0-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
BESIDE = (
    "pgpaces/_engine.abi3.so",
    "pgpaces-0.1.0.data/data/share/man/man1/pgpaces.1",
    "pgpaces-0.1.0.dist-info/licenses/LICENSE",
)


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def check(monkeypatch):
    found = module("check")
    monkeypatch.setattr(found, "manual", lambda: {"pgpaces.1"})
    return found


def wheel(folder: Path, names: set[str], name: str = NAME) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for each in names:
            archive.writestr(each, "")
    return folder / name


def test_a_wheel_with_everything_is_without_fault(check, tmp_path):
    assert list(check.wheel_faults(wheel(tmp_path, {*check.shipped(), *BESIDE}))) == []


def test_each_thing_that_a_wheel_lacks_is_told(check, tmp_path):
    sql = "pgpaces/workloads/reporting/workload.toml"
    page = "pgpaces/show/templates/page.html"
    made = wheel(tmp_path, check.shipped() - {sql, page}, "pgpaces-0.1.0-cp311-linux.whl")
    assert list(check.wheel_faults(made)) == [
        "is not for every Python from 3.11 on and every Linux with the GNU C library",
        f"lacks {page}",
        f"lacks {sql}",
        "lacks the engine",
        "lacks manual pages: make man",
        "lacks LICENSE",
    ]


def test_every_command_has_a_manual_page_with_its_options_and_examples():
    man = module("man")
    pages = {
        context.command_path: man.page(context, "0.1.0")
        for context in man.every(click.Context(cli, info_name="pgpaces"))
    }
    assert {"pgpaces", "pgpaces run", "pgpaces runs tag"} <= pages.keys()
    assert r"\fB\-c,\fP \-\-clients" in pages["pgpaces run"]
    assert "\n.SH EXAMPLES\n.nf\n" in pages["pgpaces run"]
    assert HELP["check"]["summary"] in pages["pgpaces"]


@needs("actionlint")
def test_workflows_are_without_fault():
    done = subprocess.run(
        ["actionlint"], cwd=PACKAGING.parent, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
