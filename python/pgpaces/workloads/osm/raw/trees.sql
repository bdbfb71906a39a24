-- Trees of a district that have benches within 10 m, with the number of benches.
\set any random(0, 1000000000)
SELECT tree.osm_id, count(*) AS benches
FROM area
JOIN planet_osm_polygon AS district ON district.osm_id = area.osm_id
JOIN planet_osm_point AS tree
    ON tree."natural" = 'tree' AND ST_Covers(district.way, tree.way)
JOIN planet_osm_point AS bench
    ON bench.amenity = 'bench' AND ST_DWithin(tree.way, bench.way, :radius)
WHERE area.level = 10
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 10)
GROUP BY tree.osm_id
ORDER BY benches DESC, tree.osm_id;
