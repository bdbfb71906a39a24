-- Texts near the size at which PostgreSQL uses TOAST. psql sets :scale and :seed.
CREATE TABLE big_text (
    id bigserial PRIMARY KEY,
    body text NOT NULL
);
