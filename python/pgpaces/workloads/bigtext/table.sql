-- Texts that are longer than a page likes. psql sets :scale and :seed.
CREATE TABLE big_text (
    id bigserial PRIMARY KEY,
    body text NOT NULL
);
