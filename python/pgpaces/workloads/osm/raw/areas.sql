-- An extract cuts the boundaries of areas, and osm2pgsql drops areas that are not closed. If a level
-- has no area left, squares replace the areas: counties of 16 km, towns of 4 km, districts of 1 km.
-- Their ids are below the ids of all relations.
INSERT INTO planet_osm_polygon (osm_id, boundary, admin_level, name, way)
SELECT
    -9000000000000000000 - row_number() OVER (ORDER BY wanted.level, square.i, square.j),
    'administrative',
    wanted.level::text,
    format('%s %s/%s', wanted.kind, square.i, square.j),
    square.geom
FROM (SELECT ST_SetSRID(ST_Extent(way), 3857) AS geom FROM planet_osm_point
    WHERE "natural" = 'tree') AS map,
    (VALUES (6, 'county', 16000), (8, 'town', 4000), (10, 'district', 1000))
        AS wanted (level, kind, metres),
    ST_SquareGrid(wanted.metres, map.geom) AS square
WHERE NOT EXISTS (
    SELECT FROM planet_osm_polygon
    WHERE boundary = 'administrative' AND admin_level = wanted.level::text
);

-- The areas from which scripts choose at random, numbered from 1 in each level.
CREATE TABLE area AS
SELECT
    admin_level::int AS level,
    row_number() OVER (PARTITION BY admin_level ORDER BY osm_id)::int AS id,
    osm_id
FROM (SELECT DISTINCT admin_level, osm_id FROM planet_osm_polygon
    WHERE boundary = 'administrative' AND admin_level IN ('6', '8', '10')) AS found;
ALTER TABLE area ADD PRIMARY KEY (level, id);

VACUUM ANALYZE;
