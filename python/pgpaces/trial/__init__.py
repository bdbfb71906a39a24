"""The pipeline: plan, prepare, generate, observe, store. The only place where the stages meet.

Knows no terminal.
"""
