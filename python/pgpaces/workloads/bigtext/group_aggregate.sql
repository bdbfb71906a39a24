\set id1 random(1, 10000 * :scale)
\set id2 random(1, 10000 * :scale)
\set id3 random(1, 10000 * :scale)
\set id4 random(1, 10000 * :scale)
\set id5 random(1, 10000 * :scale)
SELECT count(*), sum(length(body)), avg(length(body)) FROM big_text
 WHERE id IN (:id1, :id2, :id3, :id4, :id5);
