"""One load from several generators: processes here or on other machines, by Dask."""
