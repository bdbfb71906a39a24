-- The application calls these functions and uses no tables. A listing's first column is its id.
CREATE FUNCTION ui.get_plantings_listing(gardener int DEFAULT 1)
RETURNS TABLE (planting_id int, name text, sown date, seeds int) LANGUAGE sql STABLE AS $$
    SELECT p.planting_id, k.name, p.sown, p.seeds
      FROM garden.planting p
      JOIN garden.kind k ON k.kind_id = p.kind_id
     WHERE p.gardener_id = gardener
     ORDER BY p.sown DESC, p.planting_id
$$;
CREATE FUNCTION ui.get_plant_destinations(gardener int DEFAULT 1)
RETURNS TABLE (destination_id int, name text) LANGUAGE sql STABLE AS $$
    SELECT d.destination_id, d.name
      FROM garden.destination d
     WHERE d.gardener_id = gardener
     ORDER BY d.name
$$;
-- Returns the plant's id. Raises an error if the planting and the destination have two gardeners.
CREATE FUNCTION ui.insert_plant(planting int, destination int, day date, note text, details text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    id bigint;
BEGIN
    INSERT INTO garden.plant AS new (planting_id, destination_id, planted, note, details)
    SELECT p.planting_id, d.destination_id, day, insert_plant.note, insert_plant.details
      FROM garden.planting p
      JOIN garden.destination d ON d.gardener_id = p.gardener_id
     WHERE p.planting_id = planting
       AND d.destination_id = destination
    RETURNING new.plant_id INTO id;
    IF id IS NULL THEN
        RAISE EXCEPTION 'planting % and destination % are not of one garden', planting, destination
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN id;
END;
$$;
