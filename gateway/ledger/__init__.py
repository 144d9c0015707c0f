"""What it cost: prices, the journal, the writer that drains it into SQL, alerts and reports."""
