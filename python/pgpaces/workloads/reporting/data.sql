-- The same scale and seed give the same data on every server: values are hashes of the row number,
-- so they depend neither on the order of rows nor on the server's random number generator.
SELECT current_setting('server_version_num')::int < 110000 AS has_no_hash \gset
\if :has_no_hash
-- The same result as hashint8extended (Bob Jenkins' 32-bit hash,
-- https://burtleburtle.net/bob/hash/) for a number that is not negative.
CREATE FUNCTION pg_temp.hash(i bigint, what bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    m CONSTANT bigint := 4294967295;
    a bigint := (2654435769 + 4 + 3923095) & m;
    b bigint := a;
    c bigint := a;
BEGIN
    IF what <> 0 THEN
        a := (a + ((what >> 32) & m)) & m; b := (b + (what & m)) & m;
        a := ((a - c) & m) # (((c << 4) | (c >> 28)) & m); c := (c + b) & m;
        b := ((b - a) & m) # (((a << 6) | (a >> 26)) & m); a := (a + c) & m;
        c := ((c - b) & m) # (((b << 8) | (b >> 24)) & m); b := (b + a) & m;
        a := ((a - c) & m) # (((c << 16) | (c >> 16)) & m); c := (c + b) & m;
        b := ((b - a) & m) # (((a << 19) | (a >> 13)) & m); a := (a + c) & m;
        c := ((c - b) & m) # (((b << 4) | (b >> 28)) & m); b := (b + a) & m;
    END IF;
    a := (a + ((i & m) # (i >> 32))) & m;
    c := ((c # b) - (((b << 14) | (b >> 18)) & m)) & m;
    a := ((a # c) - (((c << 11) | (c >> 21)) & m)) & m;
    b := ((b # a) - (((a << 25) | (a >> 7)) & m)) & m;
    c := ((c # b) - (((b << 16) | (b >> 16)) & m)) & m;
    a := ((a # c) - (((c << 4) | (c >> 28)) & m)) & m;
    b := ((b # a) - (((a << 14) | (a >> 18)) & m)) & m;
    c := ((c # b) - (((b << 24) | (b >> 8)) & m)) & m;
    RETURN (b << 32) | c;
END
$$;
CREATE FUNCTION pg_temp.pick(i bigint, what bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT low + (pg_temp.hash(i, what) & 9223372036854775807) % (high - low + 1)
$$;
\else
CREATE FUNCTION pg_temp.pick(i bigint, what bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT low + (hashint8extended(i, what) & 9223372036854775807) % (high - low + 1)
$$;
\endif
-- Each column adds its number to this multiple of the seed; the prime keeps the sum in a bigint.
SELECT mod(:seed * 100::numeric, 9223372036854775783) AS stream \gset
INSERT INTO pgbench_lookup1
SELECT i, repeat('X', pg_temp.pick(i, :stream::bigint + 1, 10, 20)::int)
  FROM generate_series(1, 10::bigint * :scale) i;
INSERT INTO pgbench_lookup2
SELECT i, repeat('X', pg_temp.pick(i, :stream::bigint + 2, 10, 20)::int)
  FROM generate_series(1, 20::bigint * :scale) i;
INSERT INTO pgbench_reporting
SELECT i,
       repeat('X', pg_temp.pick(i, :stream::bigint + 3, 25, 50)::int),
       pg_temp.pick(i, :stream::bigint + 4, 1, 10 * :scale),
       pg_temp.pick(i, :stream::bigint + 5, 1, 20 * :scale),
       pg_temp.pick(i, :stream::bigint + 6, 0, 10000000) / 10000.0,
       pg_temp.pick(i, :stream::bigint + 7, 0, 10000),
       repeat('X', pg_temp.pick(i, :stream::bigint + 8, 55, 110)::int)
  FROM generate_series(1, 100000::bigint * :scale) i;
