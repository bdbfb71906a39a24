"""The store of results: a SQLite file by default, or a PostgreSQL server.

The only package that knows the database.
"""
