"""Tables: reading them from files, and encoding their values as numbers."""

from lawful.data.tables.binary import read_arrays, read_parquet, table_of
from lawful.data.tables.delimited import read_delimited
from lawful.data.tables.encoding import Column, Encoding
from lawful.data.tables.fitting import Task, fitted
from lawful.data.tables.table import Table, Values

__all__ = [
    "Column",
    "Encoding",
    "Table",
    "Task",
    "Values",
    "fitted",
    "read_arrays",
    "read_delimited",
    "read_parquet",
    "table_of",
]
