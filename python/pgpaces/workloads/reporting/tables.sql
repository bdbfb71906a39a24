-- Three tables and the view that joins them. psql sets :scale and :seed.
CREATE TABLE pgbench_lookup1 (id bigint NOT NULL, data text NOT NULL);
CREATE TABLE pgbench_lookup2 (id bigint NOT NULL, data text NOT NULL);
CREATE TABLE pgbench_reporting (
    id bigint NOT NULL,
    d1 text,
    fk1 bigint NOT NULL,
    fk2 bigint NOT NULL,
    v1 numeric(8,4),
    v2 integer,
    d2 text
);
CREATE VIEW pgbench_view AS
SELECT r.id, r.d1, r.fk1, a.data AS fk1data, r.fk2, b.data AS fk2data, r.v1, r.v2, r.d2
  FROM pgbench_reporting r
  JOIN pgbench_lookup1 a ON a.id = r.fk1
  JOIN pgbench_lookup2 b ON b.id = r.fk2;
