CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL, written timestamptz NOT NULL DEFAULT now());
INSERT INTO note (body) SELECT 'note ' || i FROM generate_series(1, 10000 * :scale) i;
VACUUM ANALYZE note;
