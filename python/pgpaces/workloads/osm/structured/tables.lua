-- Typed tables, one for each kind of object, instead of one table with a column for every tag. They
-- use osm2pgsql's flex output and the layout of PgOSM Flex. osm2pgsql sorts each table by its
-- geometry and creates a GiST index.
local srid = 3857

local function define(name, kind, geometry, columns)
    table.insert(columns, {
        column = 'geom', type = geometry, projection = srid, not_null = true,
    })
    return osm2pgsql.define_table({
        name = name, schema = 'osm', columns = columns,
        ids = { type = kind, id_column = 'osm_id' },
    })
end

local function road_columns()
    return {
        { column = 'highway', type = 'text', not_null = true },
        { column = 'name', type = 'text' },
        { column = 'ref', type = 'text' },
        { column = 'oneway', type = 'direction' },
        { column = 'layer', type = 'int' },
    }
end

local trees = define('tree_point', 'node', 'point', {
    { column = 'genus', type = 'text' },
    { column = 'species', type = 'text' },
})
local benches = define('bench_point', 'node', 'point', {
    { column = 'backrest', type = 'bool' },
    { column = 'material', type = 'text' },
})
local places = define('place_point', 'node', 'point', {
    { column = 'place', type = 'text', not_null = true },
    { column = 'name', type = 'text' },
})
local road_line = define('road_line', 'way', 'linestring', road_columns())
local road_major = define('road_major', 'way', 'linestring', road_columns())
local areas = define('admin_polygon', 'area', 'geometry', {
    { column = 'admin_level', type = 'int2', not_null = true },
    { column = 'name', type = 'text' },
})

local major = {
    motorway = true, motorway_link = true, trunk = true, trunk_link = true,
    primary = true, primary_link = true, secondary = true, secondary_link = true,
}

-- Tags that turn a closed way into a polygon in osm2pgsql's default.style.
local of_areas = {
    'aeroway', 'amenity', 'building', 'harbour', 'historic', 'landuse', 'leisure', 'man_made',
    'military', 'natural', 'office', 'place', 'power', 'public_transport', 'shop', 'sport',
    'tourism', 'water', 'waterway', 'wetland', 'abandoned:aeroway', 'abandoned:amenity',
    'abandoned:building', 'abandoned:landuse', 'abandoned:power', 'area:highway',
}

local function is_area(way)
    if not way.is_closed or way.tags.area == 'no' then
        return false
    end
    if way.tags.area == 'yes' then
        return true
    end
    for _, key in ipairs(of_areas) do
        if way.tags[key] then
            return true
        end
    end
    return false
end

local function insert_area(object, geometry)
    local level = tonumber(object.tags.admin_level)
    if object.tags.boundary == 'administrative' and level then
        areas:insert({ admin_level = level, name = object.tags.name, geom = geometry })
    end
end

function osm2pgsql.process_node(node)
    local tags = node.tags
    if tags.natural == 'tree' then
        trees:insert({ genus = tags.genus, species = tags.species, geom = node:as_point() })
    end
    if tags.amenity == 'bench' then
        benches:insert({ backrest = tags.backrest, material = tags.material, geom = node:as_point() })
    end
    if tags.place then
        places:insert({ place = tags.place, name = tags.name, geom = node:as_point() })
    end
end

function osm2pgsql.process_way(way)
    local tags = way.tags
    if is_area(way) then
        insert_area(way, way:as_polygon())
    elseif tags.highway then
        local row = {
            highway = tags.highway, name = tags.name, ref = tags.ref, oneway = tags.oneway,
            layer = tags.layer, geom = way:as_linestring(),
        }
        road_line:insert(row)
        if major[tags.highway] then
            road_major:insert(row)
        end
    end
end

function osm2pgsql.process_relation(relation)
    local kind = relation.tags.type
    if kind == 'boundary' or kind == 'multipolygon' then
        insert_area(relation, relation:as_multipolygon())
    end
end
