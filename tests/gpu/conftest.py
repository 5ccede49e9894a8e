"""Programs that tests start as processes of their own, and that need torch to be imported."""

collect_ignore = ["gloo_ranks.py"]
