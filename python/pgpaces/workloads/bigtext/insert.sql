\set number random(1, 1000000000)
\set more random(1, 25)
INSERT INTO big_text (body) VALUES (repeat(md5(:number::text), :base_length::int + :more::int));
