"""One file a metric: statistics first, then the formula."""
