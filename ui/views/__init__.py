"""One module a view of the page."""
