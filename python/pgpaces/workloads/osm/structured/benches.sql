-- The ten benches of a county that have the most trees within 10 m.
\set any random(0, 1000000000)
SELECT bench.osm_id, count(tree.osm_id) AS trees
FROM area
JOIN osm.admin_polygon AS county ON county.osm_id = area.osm_id
JOIN osm.bench_point AS bench ON ST_Covers(county.geom, bench.geom)
LEFT JOIN osm.tree_point AS tree ON ST_DWithin(bench.geom, tree.geom, :radius)
WHERE area.level = 6
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 6)
GROUP BY bench.osm_id
ORDER BY trees DESC, bench.osm_id
LIMIT 10;
