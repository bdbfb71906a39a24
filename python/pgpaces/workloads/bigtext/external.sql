-- PostgreSQL stores long texts out of line, as by default, but does not compress them.
ALTER TABLE big_text ALTER COLUMN body SET STORAGE EXTERNAL;
