-- The same texts for the same scale and seed: an md5 of the row's number, 55 times and 1 to 25 more.
INSERT INTO big_text (body)
SELECT repeat(h, 56 + (('x' || left(h, 8))::bit(32)::bigint % 25)::int)
  FROM (SELECT md5(:seed || ' ' || i) AS h FROM generate_series(1, 10000::bigint * :scale) i) AS texts;
VACUUM ANALYZE big_text;
