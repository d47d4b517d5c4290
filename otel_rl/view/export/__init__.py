"""A run in the files of other programs: traces for Perfetto, and tables as CSV or Parquet."""
