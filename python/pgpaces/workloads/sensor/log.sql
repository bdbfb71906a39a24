\set sid random(1, case when :hot > 0 then :hot else 100000 * :scale end)
\set val random(1, 100)
SELECT * FROM v_sensor WHERE sensor_id = :sid;
INSERT INTO sensor_log (sensor_id, location, reading) VALUES (:sid, :sid, :val);
SELECT max(reading) FROM sensor_log
 WHERE sensor_id = :sid
   AND reading_date > CURRENT_DATE - INTERVAL '5 minutes';
