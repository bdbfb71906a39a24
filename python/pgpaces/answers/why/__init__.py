"""Why transactions were late: of a run, or of the cells that missed the limit."""
