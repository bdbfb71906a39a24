-- A table of current values, and an empty log. psql sets :scale and :seed.
CREATE TABLE sensor (
    sensor_id serial PRIMARY KEY,
    location varchar NOT NULL,
    reading bigint NOT NULL,
    modified_date timestamp NOT NULL
);
-- A fixed day, because the same scale and seed must give the same data every day.
INSERT INTO sensor (location, reading, modified_date)
SELECT i, (i + :seed % 100) % 100, timestamp '2020-01-01 08:00' - i % 60 * interval '1 second'
  FROM generate_series(1, 100000::bigint * :scale) i;
CREATE INDEX ix_sensor_location ON sensor (location);

CREATE TABLE sensor_log (
    sensor_id bigint NOT NULL,
    location varchar NOT NULL,
    reading bigint NOT NULL,
    reading_date timestamp NOT NULL
);
CREATE UNIQUE INDEX ux_sensor_log_reading_date_sensor_id ON sensor_log (reading_date, sensor_id);

CREATE FUNCTION stamp_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.modified_date = now();
    RETURN NEW;
END;
$$;
CREATE FUNCTION log_sensor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sensor_log (sensor_id, location, reading, reading_date) VALUES (NEW.*);
    RETURN NULL;
END;
$$;
CREATE TRIGGER sensor_is_stamped BEFORE INSERT OR UPDATE ON sensor
    FOR EACH ROW EXECUTE PROCEDURE stamp_sensor();
CREATE TRIGGER sensor_is_logged AFTER INSERT OR UPDATE ON sensor
    FOR EACH ROW EXECUTE PROCEDURE log_sensor();
VACUUM ANALYZE sensor;
VACUUM ANALYZE sensor_log;
