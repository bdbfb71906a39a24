-- The same scale and seed give the same data on every server: random choices are MD5 hashes of
-- the row number.
CREATE FUNCTION pg_temp.pick(what text, low bigint, high bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT low + ('x' || left(md5(what), 8))::bit(32)::bigint % (high - low + 1)
$$;
INSERT INTO garden.kind (name)
SELECT unnest(ARRAY[
    'Artichoke', 'Basil', 'Beetroot', 'Borage', 'Broad bean', 'Broccoli', 'Brussels sprout',
    'Cabbage', 'Calendula', 'Carrot', 'Cauliflower', 'Celery', 'Chard', 'Chervil', 'Chicory',
    'Chilli', 'Chives', 'Coriander', 'Courgette', 'Cucumber', 'Dill', 'Fennel', 'French bean',
    'Garlic', 'Kale', 'Kohlrabi', 'Leek', 'Lettuce', 'Melon', 'Nasturtium', 'Onion', 'Parsley',
    'Parsnip', 'Pea', 'Pepper', 'Pumpkin', 'Radish', 'Spinach', 'Sunflower', 'Tomato'
]);
INSERT INTO garden.gardener (name, joined)
SELECT 'gardener ' || i, date '2015-01-01' + pg_temp.pick(:seed || ' joined ' || i, 0, 699)::int
  FROM generate_series(1, 100::bigint * :scale) i;
-- Each gardener has 40 plantings and 10 destinations with consecutive ids.
INSERT INTO garden.planting (gardener_id, kind_id, sown, seeds)
SELECT (i - 1) / 40 + 1,
       pg_temp.pick(:seed || ' kind ' || i, 1, 40),
       date '2017-01-15' + pg_temp.pick(:seed || ' sown ' || i, 0, 89)::int,
       pg_temp.pick(:seed || ' seeds ' || i, 1, 60)
  FROM generate_series(1, 4000::bigint * :scale) i;
INSERT INTO garden.destination (gardener_id, name)
SELECT (i - 1) / 10 + 1,
       (ARRAY['Balcony', 'Cold frame', 'Greenhouse', 'North bed', 'South bed', 'East bed',
              'West bed', 'Raised bed', 'Orchard', 'Given away'])[(i - 1) % 10 + 1]
  FROM generate_series(1, 1000::bigint * :scale) i;
INSERT INTO garden.plant (planting_id, destination_id, planted, note, details, recorded)
SELECT planting,
       (planting - 1) / 40 * 10 + pg_temp.pick(:seed || ' destination ' || i, 1, 10),
       date '2017-04-15' + day,
       'Note ' || i % 100,
       repeat('text ', pg_temp.pick(:seed || ' text ' || i, 1, 40)::int),
       timestamptz '2017-04-15 08:00+00' + day * interval '1 day'
  FROM (
      SELECT i,
             pg_temp.pick(:seed || ' planting ' || i, 1, 4000::bigint * :scale) AS planting,
             pg_temp.pick(:seed || ' day ' || i, 0, 15)::int AS day
        FROM generate_series(1, 40000::bigint * :scale) i
  ) AS plants;
