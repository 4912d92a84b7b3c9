"""Tests of ASP."""
