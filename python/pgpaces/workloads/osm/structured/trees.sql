-- Trees of a district that have benches within 10 m, with the number of benches.
\set any random(0, 1000000000)
SELECT tree.osm_id, count(*) AS benches
FROM area
JOIN osm.admin_polygon AS district ON district.osm_id = area.osm_id
JOIN osm.tree_point AS tree ON ST_Covers(district.geom, tree.geom)
JOIN osm.bench_point AS bench ON ST_DWithin(tree.geom, bench.geom, :radius)
WHERE area.level = 10
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 10)
GROUP BY tree.osm_id
ORDER BY benches DESC, tree.osm_id;
