-- The same scale and seed always give the same file, on every server and in every time zone.
SET timezone = 'UTC';
SET max_parallel_workers_per_gather = 0;
COPY (
    SELECT
        n AS id,
        ('x' || substr(h, 1, 4))::bit(16)::int % 1000 AS sensor,
        timestamptz '2020-01-01' + n * interval '1 second' AS taken_at,
        (('x' || substr(h, 5, 6))::bit(24)::int / 16777216.0 * 60 - 20)::numeric(8, 4) AS value,
        substr(h, 11, 22) AS note
    FROM (
        SELECT n, md5(:seed || ' ' || n) AS h
        FROM generate_series(1, 100000 * :scale) AS n
    ) AS rows
) TO STDOUT;
