"""The workload osm on a real server with PostGIS: two structures of one map, and its load."""

import re
import shutil
from contextlib import ExitStack
from typing import Any

import pytest
from tests.errors import raises
from tests.needs import check, lacking
from tests.servers import access_to

import pgpaces
from pgpaces.core.errors import PgpacesError, PrepareError
from pgpaces.database import data, inputs
from pgpaces.database.access import Access, connect
from pgpaces.database.data import DatasetSpec
from pgpaces.spec import workload

pytestmark = pytest.mark.postgres

SCRIPTS = ("benches", "trees", "roads", "districts")
# The GiST indexes that each script finds its rows by.
INDEXES = {
    ("raw", "benches"): {"planet_osm_point_way_idx"},
    ("raw", "trees"): {"planet_osm_point_way_idx"},
    ("raw", "roads"): {"planet_osm_line_way_idx", "planet_osm_roads_way_idx"},
    ("raw", "districts"): {"planet_osm_polygon_way_idx", "planet_osm_point_way_idx"},
    ("structured", "benches"): {"bench_point_geom_idx", "tree_point_geom_idx"},
    ("structured", "trees"): {"bench_point_geom_idx", "tree_point_geom_idx"},
    ("structured", "roads"): {"road_line_geom_idx", "road_major_geom_idx"},
    ("structured", "districts"): {"admin_polygon_geom_idx", "bench_point_geom_idx"},
}


@pytest.fixture(scope="module")
def extract(pgpaces_home):
    """The map, fetched."""
    check("PostGIS", "osm2pgsql")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPACES_HOME", str(pgpaces_home))
        try:
            inputs.located(workload.find("osm"), {}, lambda text: None)
        except PrepareError as error:
            lacking("the map of Helsinki", error.message)
        yield


@pytest.fixture(scope="module")
def maps(extract, pg15):
    """A session in the data of each variant."""
    access = access_to(pg15)
    with ExitStack() as stack:
        found = {}
        for name in ("raw", "structured"):
            prepared = stack.enter_context(prepare(access, name))
            found[name] = stack.enter_context(connect(access, prepared.dbname))
        yield found
    for (name,) in pg15.execute("SELECT datname FROM pg_database WHERE datname ~ '^pgpaces_osm_'"):
        pg15.execute(f'DROP DATABASE "{name}"')


def prepare(access: Access, variant: str, **variables: str) -> Any:
    found = workload.find(f"osm/{variant}")
    spec = DatasetSpec(found, 1, 1, variables={**found.variables, **variables})
    return data.prepare(access, spec, lambda text: None)


def text_of(variant: str, script: str, place: int) -> bytes:
    """Its statement for a place."""
    found = next(s for s in workload.find(f"osm/{variant}").scripts if s.name == script)
    text = re.sub(r"^\\set .*$", "", found.text, flags=re.MULTILINE)
    return text.replace(":any", str(place)).replace(":radius", "20").encode()


@pytest.mark.parametrize("script", SCRIPTS)
def test_both_structures_give_the_same_rows(maps, script):
    rows = 0
    for place in (0, 1, 5, 7, 8, 10, 999_999_937):
        raw, structured = (
            maps[name].execute(text_of(name, script, place)).fetchall() for name in maps
        )
        assert raw == structured
        rows += len(raw)
    assert rows > 5


@pytest.mark.parametrize(("variant", "script"), INDEXES)
def test_each_script_finds_its_rows_by_the_index_of_their_geometry(maps, variant, script):
    plan = maps[variant].execute(b"EXPLAIN " + text_of(variant, script, 5)).fetchall()
    used = set(re.findall(r"(\w+_(?:geom|way)_idx)", "\n".join(line for (line,) in plan)))
    assert INDEXES[variant, script] <= used


def test_what_is_in_the_map_is_in_both_structures(maps):
    raw = maps["raw"].execute(
        """SELECT count(*) FILTER (WHERE "natural" = 'tree'),
            count(*) FILTER (WHERE amenity = 'bench'), count(place) FROM planet_osm_point"""
    )
    structured = maps["structured"].execute(
        """SELECT (SELECT count(*) FROM osm.tree_point), (SELECT count(*) FROM osm.bench_point),
            (SELECT count(*) FROM osm.place_point)"""
    )
    assert raw.fetchall() == structured.fetchall() == [(649, 162, 7)]
    ways = "SELECT count(*), sum(osm_id) FROM"
    lines = f"{ways} planet_osm_line WHERE highway IS NOT NULL AND osm_id > 0"
    raw = maps["raw"].execute(lines.encode())
    structured = maps["structured"].execute(f"{ways} osm.road_line".encode())
    assert raw.fetchall() == structured.fetchall()


def test_another_file_is_other_data_and_one_that_is_missing_is_said(maps, tmp_path):
    found = workload.find("osm")
    values = {"scale": "1", "seed": "1"}
    same = tmp_path / "same.osm.pbf"
    shutil.copy(inputs.located(found, {}, print)["file"], same)
    other = tmp_path / "other.osm.pbf"
    other.write_bytes(b"other")
    known = inputs.identity(found, values)
    assert inputs.identity(found, {**values, "file": str(same)}) == known
    assert inputs.identity(found, {**values, "file": str(other)}) != known
    with raises(PgpacesError, "data-file-missing", path=tmp_path / "nowhere"):
        inputs.identity(found, {**values, "file": str(tmp_path / "nowhere")})


def test_its_load_is_timed(maps, pg15, tmp_path):
    target = pg15.dsn("postgres")
    found = pgpaces.run("osm/load", target=target, duration=None, store=tmp_path / "r.db")
    assert found.bulk is not None
    assert (found.counts.on_time, found.bulk.input_bytes) == (1, 685_110)
    assert found.bulk.rows is not None
    assert found.bulk.rows > 10_000


def test_a_server_without_postgis_is_said_before_anything_is_made(pg18):
    values = {"extension": "postgis", "package": "postgresql-NN-postgis-3"}
    with raises(PrepareError, "extension-missing", **values):
        prepare(pg18, "raw").__enter__()
