"""The public reader of runs: what they recorded, as columns and in SQL, by DuckDB.

`look.insight` and users import it. In reading order: `runs` opens them, `snapshot` lists their files, `valid` leaves
out what a later attempt repeated, `result` is what it returns, `locked` is for queries from elsewhere, `shown` for
notebooks.
"""
