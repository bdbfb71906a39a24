-- The same scale and seed always give the same texts: an MD5 hash of the seed and the row number,
-- repeated 56 to 80 times.
INSERT INTO big_text (body)
SELECT repeat(h, 56 + (('x' || left(h, 8))::bit(32)::bigint % 25)::int)
  FROM (SELECT md5(:seed || ' ' || i) AS h FROM generate_series(1, 10000::bigint * :scale) i) AS texts;
VACUUM ANALYZE big_text;
