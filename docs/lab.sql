-- Roles, databases and grants that pages ask for.
SELECT format('CREATE ROLE %I SUPERUSER LOGIN', :'me')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'me') \gexec
CREATE ROLE app LOGIN CREATEDB;
CREATE ROLE reader LOGIN;
CREATE ROLE boards;
CREATE ROLE pi LOGIN IN ROLE boards;
GRANT pg_monitor, pg_read_all_data, pg_checkpoint TO app;
GRANT pg_read_all_data TO reader;
CREATE DATABASE bench OWNER app;
CREATE DATABASE shop OWNER app;
CREATE DATABASE sensors OWNER app;

\connect shop
CREATE EXTENSION pg_stat_statements;
CREATE TABLE item (id integer PRIMARY KEY, name text NOT NULL, price numeric NOT NULL);
INSERT INTO item SELECT i, 'item ' || i, i FROM generate_series(1, 1000) i;
VACUUM ANALYZE;

\connect sensors
CREATE TABLE reading (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sensor integer, value real);
INSERT INTO reading (sensor, value) SELECT i % 100, i FROM generate_series(1, 10000) i;
VACUUM ANALYZE;
GRANT ALL ON ALL TABLES IN SCHEMA public TO app;
