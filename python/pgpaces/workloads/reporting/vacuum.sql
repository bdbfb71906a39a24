VACUUM ANALYZE pgbench_lookup1;
VACUUM ANALYZE pgbench_lookup2;
VACUUM ANALYZE pgbench_reporting;
