-- Number of roads that overlap a district, and their length within it: all roads and major roads.
\set any random(0, 1000000000)
WITH district AS (
    SELECT found.way
    FROM area
    JOIN planet_osm_polygon AS found ON found.osm_id = area.osm_id
    WHERE area.level = 10
        AND area.id = 1 + :any % (SELECT max(id) FROM area WHERE level = 10)
)
SELECT
    'all' AS roads,
    count(DISTINCT road.osm_id) AS ways,
    round(sum(ST_Length(ST_Intersection(road.way, district.way)))) AS metres
FROM district
JOIN planet_osm_line AS road ON ST_Intersects(district.way, road.way)
WHERE road.highway IS NOT NULL AND road.osm_id > 0
UNION ALL
SELECT
    'major',
    count(DISTINCT road.osm_id),
    round(sum(ST_Length(ST_Intersection(road.way, district.way))))
FROM district
JOIN planet_osm_roads AS road ON ST_Intersects(district.way, road.way)
WHERE road.osm_id > 0
    AND road.highway IN (
        'motorway', 'motorway_link', 'trunk', 'trunk_link',
        'primary', 'primary_link', 'secondary', 'secondary_link'
    );
