\set n random(1, 1000)
INSERT INTO note (body) VALUES ('note ' || :n);
