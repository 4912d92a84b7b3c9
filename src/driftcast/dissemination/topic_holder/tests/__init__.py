"""Tests of topic holders."""
