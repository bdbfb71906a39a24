"""Where PostgreSQL comes from: programs found on this machine, and managed servers."""
