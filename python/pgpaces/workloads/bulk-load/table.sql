-- The table that the command loads: sensor readings in the order of their arrival.
CREATE TABLE readings (
    id bigint NOT NULL,
    sensor int NOT NULL,
    taken_at timestamptz NOT NULL,
    value double precision NOT NULL,
    note text NOT NULL
);
\ir index.sql
