\set id random(1, 10000 * :scale)
SELECT body, written FROM note WHERE id = :id;
