-- What is loaded into: readings of sensors, as they come in.
CREATE TABLE readings (
    id bigint NOT NULL,
    sensor int NOT NULL,
    taken_at timestamptz NOT NULL,
    value double precision NOT NULL,
    note text NOT NULL
);
\ir index.sql
