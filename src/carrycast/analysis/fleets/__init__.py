"""A fleet's data: files of any known format become tables of one schema, cleaned, on Spark."""
