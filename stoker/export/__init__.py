"""Topics as Parquet files: `columns` makes a table's columns of the messages' types, `write` fills them."""
