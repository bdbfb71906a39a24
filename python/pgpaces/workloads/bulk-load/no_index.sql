ALTER TABLE readings DROP CONSTRAINT readings_pkey;
DROP INDEX readings_sensor_taken_at;
