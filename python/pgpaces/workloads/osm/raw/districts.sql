-- The number of benches in each district of a county.
\set any random(0, 1000000000)
SELECT district.name, count(DISTINCT bench.osm_id) AS benches
FROM area
JOIN planet_osm_polygon AS county ON county.osm_id = area.osm_id
JOIN planet_osm_polygon AS district
    ON district.boundary = 'administrative' AND district.admin_level = '10'
    AND county.way && district.way
    AND ST_Covers(county.way, ST_PointOnSurface(district.way))
JOIN planet_osm_point AS bench
    ON bench.amenity = 'bench' AND ST_Covers(district.way, bench.way)
WHERE area.level = 6
    AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 6)
GROUP BY district.osm_id, district.name
ORDER BY benches DESC, district.osm_id;
