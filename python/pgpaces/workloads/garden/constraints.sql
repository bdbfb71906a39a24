-- Foreign keys and indexes, created after the data because that is faster.
ALTER TABLE garden.planting
    ADD CONSTRAINT planting_gardener_id_fkey
        FOREIGN KEY (gardener_id) REFERENCES garden.gardener (gardener_id),
    ADD CONSTRAINT planting_kind_id_fkey FOREIGN KEY (kind_id) REFERENCES garden.kind (kind_id);
ALTER TABLE garden.destination
    ADD CONSTRAINT destination_gardener_id_fkey
        FOREIGN KEY (gardener_id) REFERENCES garden.gardener (gardener_id),
    ADD CONSTRAINT ux_destination_gardener_id_name UNIQUE (gardener_id, name);
ALTER TABLE garden.plant
    ADD CONSTRAINT plant_planting_id_fkey
        FOREIGN KEY (planting_id) REFERENCES garden.planting (planting_id),
    ADD CONSTRAINT plant_destination_id_fkey
        FOREIGN KEY (destination_id) REFERENCES garden.destination (destination_id);
CREATE INDEX ix_planting_gardener_id_sown ON garden.planting (gardener_id, sown DESC);
CREATE INDEX ix_plant_planting_id ON garden.plant (planting_id);
CREATE INDEX ix_plant_destination_id_planted ON garden.plant (destination_id, planted);
VACUUM ANALYZE garden.gardener;
VACUUM ANALYZE garden.kind;
VACUUM ANALYZE garden.planting;
VACUUM ANALYZE garden.destination;
VACUUM ANALYZE garden.plant;
