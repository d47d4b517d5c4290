"""A run in the files of other programs: traces for Perfetto, tables as CSV or Parquet, trajectories as ATIF.

In reading order: `tables`; `perfetto` with its `lanes`; `atif` writes trajectories, `from_atif` reads them with
`atif_items`.
"""
