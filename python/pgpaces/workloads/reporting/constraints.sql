-- Keys and indexes, created after the data because that is faster.
ALTER TABLE pgbench_lookup1 ADD CONSTRAINT pk_pgbench_lookup1 PRIMARY KEY (id);
ALTER TABLE pgbench_lookup2 ADD CONSTRAINT pk_pgbench_lookup2 PRIMARY KEY (id);
ALTER TABLE pgbench_reporting ADD CONSTRAINT pk_pgbench_reporting PRIMARY KEY (id);
ALTER TABLE pgbench_reporting ADD CONSTRAINT fk_pgbench_reporting_fk1
    FOREIGN KEY (fk1) REFERENCES pgbench_lookup1 (id);
ALTER TABLE pgbench_reporting ADD CONSTRAINT fk_pgbench_reporting_fk2
    FOREIGN KEY (fk2) REFERENCES pgbench_lookup2 (id);
CREATE INDEX ix_pgbench_reporting_fk1 ON pgbench_reporting (fk1);
CREATE INDEX ix_pgbench_reporting_fk2 ON pgbench_reporting (fk2);
