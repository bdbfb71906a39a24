"""Why transactions were late: outcomes and samples of trials in, possible causes out. Pure."""
