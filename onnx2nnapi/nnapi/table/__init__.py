"""The rows of the schema table, one module a family of operations."""
