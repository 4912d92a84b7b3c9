"""Placeholder until the pipeline stands."""

import argparse


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """None yet."""
