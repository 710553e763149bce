"""Train, run and measure small neural translation models on one's own machine."""

__version__ = "0.1.0"
