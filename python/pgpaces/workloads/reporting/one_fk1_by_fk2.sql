\set fk1 random(1, 10 * :scale)
SELECT fk1, fk1data, fk2, fk2data, count(*) AS cnt, avg(v1) AS v1_avg, max(v2) AS v2_max,
       min(v1 * v2) AS v_min
  FROM pgbench_view
 WHERE fk1 = :fk1
 GROUP BY fk1, fk1data, fk2, fk2data;
