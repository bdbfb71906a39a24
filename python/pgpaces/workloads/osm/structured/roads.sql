-- Number of roads that overlap a district, and their length within it: all roads and major roads.
\set any random(0, 1000000000)
WITH district AS (
    SELECT found.geom
    FROM area
    JOIN osm.admin_polygon AS found ON found.osm_id = area.osm_id
    WHERE area.level = 10
        AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 10)
)
SELECT
    'all' AS roads,
    count(DISTINCT road.osm_id) AS ways,
    round(sum(ST_Length(ST_Intersection(road.geom, district.geom)))) AS metres
FROM district
JOIN osm.road_line AS road ON ST_Intersects(district.geom, road.geom)
UNION ALL
SELECT
    'major',
    count(DISTINCT road.osm_id),
    round(sum(ST_Length(ST_Intersection(road.geom, district.geom))))
FROM district
JOIN osm.road_major AS road ON ST_Intersects(district.geom, road.geom);
