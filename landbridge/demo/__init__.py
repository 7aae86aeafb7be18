"""``landbridge demo``: from nothing to a report, every stage by the commands a user would type."""
