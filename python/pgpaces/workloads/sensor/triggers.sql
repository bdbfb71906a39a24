\set sid random(1, case when :hot > 0 then :hot else 100000 * :scale end)
\set val random(1, 100)
SELECT * FROM sensor WHERE sensor_id = :sid;
UPDATE sensor SET reading = :val WHERE sensor_id = :sid;
SELECT max(reading) FROM sensor_log
 WHERE sensor_id = :sid
   AND reading_date > CURRENT_DATE - INTERVAL '5 minutes';
