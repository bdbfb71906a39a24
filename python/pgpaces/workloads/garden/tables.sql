-- Gardeners, their plantings, and the destinations of the plants. psql sets :scale and :seed.
CREATE SCHEMA garden;
CREATE SCHEMA ui;
CREATE TABLE garden.gardener (
    gardener_id serial PRIMARY KEY,
    name text NOT NULL UNIQUE,
    joined date NOT NULL
);
CREATE TABLE garden.kind (
    kind_id serial PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE TABLE garden.planting (
    planting_id serial PRIMARY KEY,
    gardener_id int NOT NULL,
    kind_id int NOT NULL,
    sown date NOT NULL,
    seeds int NOT NULL CHECK (seeds > 0)
);
CREATE TABLE garden.destination (
    destination_id serial PRIMARY KEY,
    gardener_id int NOT NULL,
    name text NOT NULL
);
CREATE TABLE garden.plant (
    plant_id bigserial PRIMARY KEY,
    planting_id int NOT NULL,
    destination_id int NOT NULL,
    planted date NOT NULL,
    note varchar(200) NOT NULL,
    details text NOT NULL,
    recorded timestamptz NOT NULL DEFAULT now()
);
