ALTER TABLE readings ADD CONSTRAINT readings_pkey PRIMARY KEY (id);
CREATE INDEX readings_sensor_taken_at ON readings (sensor, taken_at);
