SELECT fk1, fk1data, count(*) AS cnt, avg(v1) AS v1_avg, max(v2) AS v2_max
  FROM pgbench_view
 GROUP BY fk1, fk1data;
