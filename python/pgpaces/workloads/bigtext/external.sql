-- Long texts are stored apart from their row, as by default, and are not compressed.
ALTER TABLE big_text ALTER COLUMN body SET STORAGE EXTERNAL;
