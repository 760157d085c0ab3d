"""What dpaudit shows and costs beside other tools: one table, one row per method."""
