\set id random(1, 10000 * :scale)
SELECT id, body FROM big_text WHERE id = :id;
