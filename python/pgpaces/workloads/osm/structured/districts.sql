-- The number of benches in each district of a county.
\set any random(0, 1000000000)
SELECT district.name, count(DISTINCT bench.osm_id) AS benches
FROM area
JOIN osm.admin_polygon AS county ON county.osm_id = area.osm_id
JOIN osm.admin_polygon AS district
    ON district.admin_level = 10
    AND county.geom && district.geom
    AND ST_Covers(county.geom, ST_PointOnSurface(district.geom))
JOIN osm.bench_point AS bench ON ST_Covers(district.geom, bench.geom)
WHERE area.level = 6
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 6)
GROUP BY district.osm_id, district.name
ORDER BY benches DESC, district.osm_id;
