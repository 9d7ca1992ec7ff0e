"""Cold store: finished days as Parquet files, and SQL over cold and hot rows together."""
