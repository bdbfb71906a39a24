-- The ten benches of a county that have the most trees within 10 m.
\set any random(0, 1000000000)
SELECT bench.osm_id, count(tree.osm_id) AS trees
FROM area
JOIN planet_osm_polygon AS county ON county.osm_id = area.osm_id
JOIN planet_osm_point AS bench
    ON bench.amenity = 'bench' AND ST_Covers(county.way, bench.way)
LEFT JOIN planet_osm_point AS tree
    ON tree."natural" = 'tree' AND ST_DWithin(bench.way, tree.way, :radius)
WHERE area.level = 6
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 6)
GROUP BY bench.osm_id
ORDER BY trees DESC, bench.osm_id
LIMIT 10;
