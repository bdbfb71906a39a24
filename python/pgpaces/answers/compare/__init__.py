"""Whether B is better than A: which trials are meant, the verdict in words, its section."""
