-- The same data for the same scale and seed, on every server: numbers are hashes of the row's
-- number, so neither the order of rows nor the server's generator matters.
CREATE FUNCTION pg_temp.pick(i bigint, what bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT low + (hashint8extended(i, what) & 9223372036854775807) % (high - low + 1)
$$;
INSERT INTO pgbench_lookup1
SELECT i, repeat('X', pg_temp.pick(i, :seed * 100 + 1, 10, 20)::int)
  FROM generate_series(1, 10::bigint * :scale) i;
INSERT INTO pgbench_lookup2
SELECT i, repeat('X', pg_temp.pick(i, :seed * 100 + 2, 10, 20)::int)
  FROM generate_series(1, 20::bigint * :scale) i;
INSERT INTO pgbench_reporting
SELECT i,
       repeat('X', pg_temp.pick(i, :seed * 100 + 3, 25, 50)::int),
       pg_temp.pick(i, :seed * 100 + 4, 1, 10 * :scale),
       pg_temp.pick(i, :seed * 100 + 5, 1, 20 * :scale),
       pg_temp.pick(i, :seed * 100 + 6, 0, 10000000) / 10000.0,
       pg_temp.pick(i, :seed * 100 + 7, 0, 10000),
       repeat('X', pg_temp.pick(i, :seed * 100 + 8, 55, 110)::int)
  FROM generate_series(1, 100000::bigint * :scale) i;
