-- Only a log, with one reading of each sensor. psql sets :scale and :seed.
CREATE TABLE sensor_log (
    sensor_id serial NOT NULL,
    location varchar NOT NULL,
    reading bigint NOT NULL,
    reading_date timestamp NOT NULL DEFAULT now()
);
-- A fixed day, because the same scale and seed must give the same data every day.
INSERT INTO sensor_log (location, reading, reading_date)
SELECT i, (i + :seed % 100) % 100, timestamp '2020-01-01 08:00' - i % 60 * interval '1 second'
  FROM generate_series(1, 100000::bigint * :scale) i;
CREATE UNIQUE INDEX ux_sensor_log_sensor_id_reading_date
    ON sensor_log (sensor_id, reading_date DESC);
CREATE VIEW v_sensor AS
SELECT DISTINCT ON (sensor_id) * FROM sensor_log ORDER BY sensor_id, reading_date DESC;
VACUUM ANALYZE sensor_log;
