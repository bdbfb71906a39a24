"""Reports: values in, text, tables and pages out. Reads no store and measures nothing."""
