"""Measurements that check results before they report, and write to results/."""
