ALTER TABLE osm.tree_point ADD PRIMARY KEY (osm_id);
ALTER TABLE osm.bench_point ADD PRIMARY KEY (osm_id);
ALTER TABLE osm.place_point ADD PRIMARY KEY (osm_id);
ALTER TABLE osm.road_line ADD PRIMARY KEY (osm_id);
ALTER TABLE osm.road_major ADD PRIMARY KEY (osm_id);
ALTER TABLE osm.admin_polygon ADD PRIMARY KEY (osm_id);

-- The same squares as in raw/areas.sql.
INSERT INTO osm.admin_polygon (osm_id, admin_level, name, geom)
SELECT
    -9000000000000000000 - row_number() OVER (ORDER BY wanted.level, square.i, square.j),
    wanted.level,
    format('%s %s/%s', wanted.kind, square.i, square.j),
    square.geom
FROM (SELECT ST_SetSRID(ST_Extent(geom), 3857) AS geom FROM osm.tree_point) AS map,
    (VALUES (6, 'county', 16000), (8, 'town', 4000), (10, 'district', 1000))
        AS wanted (level, kind, metres),
    ST_SquareGrid(wanted.metres, map.geom) AS square
WHERE NOT EXISTS (SELECT FROM osm.admin_polygon WHERE admin_level = wanted.level);

CREATE TABLE area AS
SELECT
    admin_level::int AS level,
    row_number() OVER (PARTITION BY admin_level ORDER BY osm_id)::int AS id,
    osm_id
FROM osm.admin_polygon
WHERE admin_level IN (6, 8, 10);
ALTER TABLE area ADD PRIMARY KEY (level, id);

VACUUM ANALYZE;
